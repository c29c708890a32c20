"""The results of the analyses as plain data, which reports show."""
