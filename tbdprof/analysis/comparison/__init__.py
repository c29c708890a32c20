"""Recordings beside each other: what differs, by how much, and whether that is more than the variation."""
