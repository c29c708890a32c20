"""The session with TensorFlow's profiler, and the reading of the file that it writes."""
