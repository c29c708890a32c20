"""The results of the analyses of a recording: data only, which reports show."""
