"""Analyses of several recordings of one program at different settings."""
