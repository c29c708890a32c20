"""The memory window: allocations, owners, and the allocator's own figures."""
