"""The kernels window: every operator that ran, what it computes, and what GPUs executed for it."""
