"""NVIDIA's driver and its account of a device."""
