"""Draws initial weights in numpy: the same bits for every framework."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Weights = Iterator[tuple[str, Floats]]  # by name, one at a time


def normal(random: np.random.Generator, shape: tuple[int, ...], deviation: float) -> Floats:
    """Return normal values of mean 0 and a standard deviation."""
    drawn = random.standard_normal(shape, dtype=np.float32)
    drawn *= np.float32(deviation)
    return drawn


def uniform(random: np.random.Generator, shape: tuple[int, ...], bound: float) -> Floats:
    """Return uniformly distributed values between a bound and its negative."""
    drawn = random.random(shape, dtype=np.float32)
    drawn -= np.float32(0.5)
    drawn *= np.float32(2 * bound)
    return drawn
