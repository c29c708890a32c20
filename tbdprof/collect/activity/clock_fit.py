"""Convert times of another nanosecond clock to `time.monotonic_ns`, with a bound on the error."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Pair = tuple[int, int, int]  # this clock before, the other clock, this clock after

# Adjusted clocks drift by at most about 500 parts per million from each other: more means that one was set.
_MOST_DRIFT = 1e-3


@dataclass(frozen=True, slots=True)
class Fit:
    """A line from another clock to this one: `offset_ns` is this clock's time at the other's `origin`."""

    slope: float  # nanoseconds of this clock per nanosecond of the other
    offset_ns: int
    residual_ns: float  # the largest possible error of a converted time at one of the pairs
    origin: int

    def convert(self, times: Any) -> NDArray[np.int64]:
        """Convert times of the other clock to this clock; they must be within 104 days of `origin`."""
        since = np.asarray(times, "i8") - self.origin
        here: NDArray[np.int64] = np.rint(self.slope * since).astype("i8") + self.offset_ns
        return here


def pair(other: Callable[[], int], clock: Callable[[], int] = time.monotonic_ns, tries: int = 32) -> Pair:
    """Return a reading of the other clock between two of this one; of several, the one whose two are closest."""
    readings = [(clock(), other(), clock()) for _ in range(tries)]
    return min(readings, key=lambda reading: reading[2] - reading[0])


def fit(pairs: Sequence[Pair]) -> Fit:
    """Return the line nearest to the middles of the pairs, with slope 1 if they do not determine the slope.

    Raise ValueError if there is no pair.
    """
    if not pairs:
        raise ValueError("no reading of the two clocks")
    before, other, after = np.array(pairs, "i8").T  # integers, because a float cannot hold nanoseconds since 1970
    origin = int(other[0])
    since = (other - origin).astype("f8")
    middle = (before - before[0]) + (after - before) / 2
    slope = _slope(since, middle)
    offset_ns = int(before[0]) + round(float(np.mean(middle - slope * since)))
    line = Fit(slope, offset_ns, 0.0, origin)
    converted = line.convert(other)
    residual_ns = float(np.max(np.maximum(converted - before, after - converted)))
    return Fit(slope, offset_ns, residual_ns, origin)


def _slope(since: NDArray[np.float64], middle: NDArray[np.float64]) -> float:
    spread = since - since.mean()
    square = float(spread @ spread)
    slope = float(spread @ middle) / square if square else 1.0
    return slope if abs(slope - 1) <= _MOST_DRIFT else 1.0
