"""The figures and tables of the TBD paper (Zhu et al., 2018, arXiv:1803.06905), drawn from the recordings of sweeps."""
