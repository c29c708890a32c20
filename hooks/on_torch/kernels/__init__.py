"""The kernels window: operators, what they compute, and GPU activity."""
