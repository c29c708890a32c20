"""Reports: each takes a summary and returns text."""
