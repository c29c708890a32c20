"""What MXNet needs before it is imported."""

import numpy as np

if "bool" not in np.__dict__:
    np.bool = bool  # numpy 1.24 took the name away, and MXNet 1.9 reads it
