"""The memory window: allocations and frees, the operators they lie in, and what owns which block."""
