"""Pure functions from a recording to results."""
