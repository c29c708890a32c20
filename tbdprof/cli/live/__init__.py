"""A view of a run while it goes on, from its file alone."""
