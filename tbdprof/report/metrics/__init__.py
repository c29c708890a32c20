"""The figures of a run for other tools: a flat dictionary for loggers, and text for Prometheus."""
