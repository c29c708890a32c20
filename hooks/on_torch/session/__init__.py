"""A session of torch's profiler, and its events read into a trace without torch's own types."""
