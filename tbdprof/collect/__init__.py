"""Instruments that do not belong to a framework: the host, and later the device's counters."""
