"""The memory window, and MXNet's allocator, which is followed within windows and between them."""
