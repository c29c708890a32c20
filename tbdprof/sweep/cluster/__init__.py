"""Sweeps on a cluster: Ray hands the points to machines, and their files come home into the sweep's folder."""
