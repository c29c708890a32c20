"""What this machine can measure, and what to install for more."""
