"""The data sets of the suite: readers of a user's copy, synthetic mini-batches, and what both build on."""
