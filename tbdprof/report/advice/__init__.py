"""Reports of the switches that were tried: as text and as JSON."""
