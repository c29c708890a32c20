"""What the device, its driver and its counters report."""
