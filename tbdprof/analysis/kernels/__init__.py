"""The kernels that ran, their FLOP counts, and how well they used the device."""
