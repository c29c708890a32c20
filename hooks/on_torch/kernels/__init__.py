"""The kernels window: operators, what they compute, and what a GPU did."""
