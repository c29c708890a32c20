"""The session with TensorFlow's profiler, and the reading of what it wrote."""
