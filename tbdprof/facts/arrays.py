"""Names for the types of numpy arrays, and what keeps arrays of a million whole numbers small."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Texts = NDArray[np.int32]  # index among the recorded texts
Codes = NDArray[np.uint8]
Rows = NDArray[np.int32]  # numbers of rows; no table that is read has 2**31

_FEW = 1 << 16


def narrowed(values: NDArray[Any]) -> NDArray[Any]:
    """Return whole numbers in the narrowest signed type that has them all; to add two such arrays may overflow."""
    least, most = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    for kind in (np.int8, np.int16, np.int32):
        limits = np.iinfo(kind)
        if limits.min <= least and most <= limits.max:
            return values.astype(kind)
    return values


def ranked(keys: NDArray[Any]) -> tuple[Ints, Rows]:
    """Return the different keys in order, and each key's place among them: `np.unique` without sorting all of them."""
    least = int(keys.min(initial=0))
    reach = int(keys.max(initial=least)) - least + 1
    if reach > 4 * len(keys) + _FEW:
        found, place = np.unique(keys, return_inverse=True)
        return found.astype(np.int64), place.astype(np.int32)
    keys = keys - least
    there = np.zeros(reach, bool)
    there[keys] = True
    place = np.cumsum(there, dtype=np.int32)
    place -= 1
    return np.flatnonzero(there) + least, place[keys]
