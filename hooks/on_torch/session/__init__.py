"""A session of torch's profiler, and its events read into a trace freed of torch's own types."""
