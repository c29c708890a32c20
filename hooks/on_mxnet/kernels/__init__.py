"""The kernels window: the operators that ran, with their phases, their layers and what they compute."""
