"""The memory window: allocations, owners, and what the allocator tells of itself."""
