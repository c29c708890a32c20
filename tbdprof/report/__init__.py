"""One reporter a file; each takes a Summary and returns text."""
