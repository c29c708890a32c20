"""The observations of the TBD paper (Zhu et al., 2018, arXiv:1803.06905), each as a test on recordings."""
