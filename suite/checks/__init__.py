"""Whether a model learns: what a check is, and those that several models share."""
