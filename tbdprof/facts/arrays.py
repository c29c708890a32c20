"""Names for the types of numpy arrays."""

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Texts = NDArray[np.int32]  # index among the recorded texts
Codes = NDArray[np.uint8]
