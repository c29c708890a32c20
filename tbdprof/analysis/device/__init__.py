"""What the device, its driver and its counters say of themselves."""
