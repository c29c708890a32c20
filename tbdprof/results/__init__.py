"""What the analyses of a recording come to: data only, which reports show."""
