"""What this machine can measure, and what would raise it."""
