"""Checks that a model learns: what a check consists of, and the checks that several models share."""
