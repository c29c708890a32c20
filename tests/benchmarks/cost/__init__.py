"""The parts of `overhead.py`: what profiling costs, against the same training with nothing watching."""
