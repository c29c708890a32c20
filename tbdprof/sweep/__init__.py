"""Sweeps: one program at many settings, each in a fresh process, all in one folder."""

PLAN = "sweep.json"  # in the folder of a sweep
