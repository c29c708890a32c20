"""NVIDIA's driver and what it reports of a device."""
