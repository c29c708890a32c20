"""What runs beneath MXNet's Python: its engine and its profiler, what is asked of them, and what they ran."""
