"""The memory window: allocations and frees, the operators around them, and the owner of each block."""
