"""The file that a recording is kept in: its format, reading and writing it, and its place on the disk."""
