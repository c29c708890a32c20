"""Decide which samples are valid, and how many are missing between them."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from tbdprof.collect.pm import Decoded, Floats, Ints

_STRETCHED = 1.5  # intervals: a longer sample includes time before sampling began
_GAP = 0.5  # intervals


@dataclass(slots=True)
class Losses:
    """How much was lost, and where."""

    broken: int = 0  # samples without a time or a length, or that overlap the one before
    outside: int = 0  # samples from a time at which nothing was sampled
    stretched: int = 0
    missing: int = 0  # samples that would fill the gaps
    gaps: int = 0
    full: int = 0  # how often the image was full
    overflows: int = 0  # how often the hardware's buffer was full

    @property
    def samples(self) -> int:
        """Return how many samples are lost; the first one and those outside never belonged to the window."""
        return self.broken + self.missing

    def figures(self) -> dict[str, int]:
        """Return the figures by name."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Kept:
    """Samples ordered by time, and their usual length."""

    start: Ints
    end: Ints
    values: Floats
    interval_ns: int = 0

    def only(self, rows: "np.typing.NDArray[np.bool_]") -> "Kept":
        """Return some of the samples."""
        return Kept(self.start[rows], self.end[rows], self.values[rows], self.interval_ns)


def joined(pieces: Sequence[Decoded], metrics: int) -> Kept:
    """Return all samples of some pieces, in the order in which they came."""
    nothing = Decoded(np.zeros(0, "i8"), np.zeros(0, "i8"), np.zeros((0, metrics)))
    every = [nothing, *pieces]
    return Kept(
        np.concatenate([each.start for each in every]),
        np.concatenate([each.end for each in every]),
        np.concatenate([each.values for each in every]),
    )


def believed(samples: Kept, losses: Losses) -> Kept:
    """Return the valid samples, and add the lost ones to `losses`.

    The first sample may begin at 0 or long before sampling did, and some samples have no length. Both kinds are left
    out. A gap is where a sample does not begin where the one before it ended.
    """
    long = samples.only((samples.start > 0) & (samples.end > samples.start))
    apart = long.only(np.concatenate([np.ones(len(long.start[:1]), bool), long.start[1:] >= long.end[:-1]]))
    losses.broken += len(samples.start) - len(apart.start)
    if not len(apart.start):
        return apart
    interval = int(np.median(apart.end - apart.start))
    usual = apart.only(apart.end - apart.start <= _STRETCHED * interval)
    losses.stretched += len(apart.start) - len(usual.start)
    gaps = usual.start[1:] - usual.end[:-1]
    wide = gaps[gaps > _GAP * interval]
    losses.gaps += len(wide)
    losses.missing += int(np.maximum(np.rint(wide / interval), 1).sum())
    return Kept(usual.start, usual.end, usual.values, interval)
