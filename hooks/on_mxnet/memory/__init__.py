"""The memory window, and MXNet's allocator, which is followed in every window and between them."""
