"""MXNet's engine and its profiler: the requests of MXNet's Python API to the engine, and what the engine ran."""
