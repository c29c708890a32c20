"""Divide samples of hardware counters among the kernels that ran while they were taken.

A sample s of length L is the mean m of a counter over its time: m(s) · L = Σ u(k) · overlap(s, k) + u(idle) · idle(s).
The unknowns are the u(k) of groups of kernels. Non-negative least squares finds them (C. Lawson, R. Hanson, "Solving
Least Squares Problems", 1974, chapter 23). A kernel need not fill a sample: many samples that overlap a short kernel
determine its use together. Clocks that disagree by a fraction of a sample spoil this. So the first step finds the
offset at which the samples agree best with the kernels' times.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tbdprof.facts.arrays import Floats, Ints
from tbdprof.results.sampled import Offset

REACH_NS = 500_000  # the largest offset tried between the clocks of kernels and of samples
_COARSE_NS = 20_000
_FINE_NS = 2_000
_MOST_CALIBRATED = 10_000  # samples; more do not improve the offset
_LEAST_EXPLAINED = 0.3  # of the variance; a counter explained less gives no offset
_LEAST_DEVIATION = 0.01  # a counter with a smaller standard deviation gives no offset
_RANK = 1e-9  # of the largest eigenvalue; below it, groups cannot be distinguished
_APART = 1e-3


@dataclass(frozen=True, slots=True)
class Intervals:
    """Intervals of time, ordered by their starts: kernels, or samples (which do not overlap)."""

    start_ns: Ints
    end_ns: Ints

    def __len__(self) -> int:
        """Return how many intervals there are."""
        return len(self.start_ns)

    @property
    def lengths(self) -> Floats:
        """Return the length of each interval."""
        long: Floats = (self.end_ns - self.start_ns).astype(float)
        return long

    def shifted(self, shift_ns: int) -> "Intervals":
        """Return the same intervals, shifted in time."""
        return Intervals(self.start_ns + shift_ns, self.end_ns + shift_ns)

    def first(self, count: int) -> "Intervals":
        """Return the first `count` of them, or all if there are fewer."""
        return Intervals(self.start_ns[:count], self.end_ns[:count])


@dataclass(frozen=True, slots=True)
class Solution:
    """The use of each group, its standard error (infinite if the samples do not determine it), and the residuals.

    Residuals are root mean squares: `residual` over all samples, `residuals` over the samples that overlap each group,
    weighted by the overlap.
    """

    use: Floats
    error: Floats
    residual: float
    residuals: Floats


def covered(samples: Intervals, kernels: Intervals) -> Floats:
    """Return the fraction of each sample in which at least one kernel ran."""
    return _fraction(samples, _busy_until(kernels)) if len(kernels) else np.zeros(len(samples))


def _busy_until(kernels: Intervals) -> tuple[Ints, Floats]:
    """Return the edges of the busy intervals, and the busy time up to each edge."""
    reached = np.maximum.accumulate(kernels.end_ns)
    begins = np.concatenate([[True], kernels.start_ns[1:] > reached[:-1]])
    start, end = kernels.start_ns[begins], reached[np.concatenate([np.flatnonzero(begins)[1:] - 1, [-1]])]
    busy = np.concatenate([[0], np.cumsum(end - start)])
    before = np.stack([busy[:-1], busy[1:]], axis=1).reshape(-1)
    return np.stack([start, end], axis=1).reshape(-1), before.astype(float)


def _fraction(samples: Intervals, busy_until: tuple[Ints, Floats]) -> Floats:
    edges, busy = busy_until
    origin = edges[0]  # a float is exact for nanoseconds since this origin, not for those since boot
    begun, ended = (np.interp(each - origin, edges - origin, busy) for each in (samples.start_ns, samples.end_ns))
    fraction: Floats = (ended - begun) / samples.lengths
    return fraction


def shares(samples: Intervals, kernels: Intervals, group: Ints, groups: int) -> Any:
    """Return the fraction of each sample in which each group's kernels ran; the last column is the idle fraction.

    The result is a sparse matrix of samples × (groups + 1). A row adds up to more than 1 if kernels run concurrently.
    """
    from scipy import sparse

    first = np.searchsorted(samples.end_ns, kernels.start_ns, side="right")
    last = np.searchsorted(samples.start_ns, kernels.end_ns, side="left")
    count = np.maximum(last - first, 0)
    kernel = np.repeat(np.arange(len(kernels)), count)
    sample = np.arange(len(kernel)) - np.repeat(np.cumsum(count) - count - first, count)
    overlap = np.minimum(kernels.end_ns[kernel], samples.end_ns[sample]) - np.maximum(
        kernels.start_ns[kernel], samples.start_ns[sample]
    )
    length, idle = samples.lengths, 1.0 - covered(samples, kernels)
    data = np.concatenate([overlap / length[sample], idle])
    rows = np.concatenate([sample, np.arange(len(samples))])
    columns = np.concatenate([group[kernel], np.full(len(samples), groups)])
    return sparse.coo_matrix((data, (rows, columns)), shape=(len(samples), groups + 1)).tocsr()


def solve(matrix: Any, values: Floats) -> Solution:
    """Return the non-negative uses that fit the values best, by least squares."""
    from scipy.optimize import nnls

    normal, right = (matrix.T @ matrix).toarray(), matrix.T @ values
    scale, vectors = np.linalg.eigh(normal)
    resolved = scale > _RANK * max(scale[-1], _RANK)
    root, basis = np.sqrt(scale[resolved]), vectors[:, resolved]
    use, _ = nnls(root[:, None] * basis.T, (basis.T @ right) / root)
    left = values - matrix @ use
    square = float(left @ left)
    spread = ((basis / root) ** 2).sum(axis=1)
    variance = square / max(1, len(values) - int((use > 0).sum()))
    error = np.where((vectors[:, ~resolved] ** 2).sum(axis=1) > _APART, np.inf, np.sqrt(variance * spread))
    parts = np.maximum(matrix.T @ np.ones(len(values)), np.finfo(float).tiny)
    return Solution(use, error, float(np.sqrt(square / max(1, len(values)))), np.sqrt(matrix.T @ left**2 / parts))


def calibrated(
    samples: Intervals, kernels: Intervals, group: Ints, groups: int, courses: Sequence[tuple[str, Floats]], busy: str
) -> Offset:
    """Return the offset at which samples agree best with the kernels, from the first counter that determines one.

    `courses` holds pairs of a counter's name and its samples. The counter named `busy` is compared with the fraction of
    time in which any kernel ran. It is constant, and gives no offset, if kernels follow each other without a gap. Any
    other counter is compared with the use by groups of kernels.
    """
    from scipy import sparse

    few = samples.first(_MOST_CALIBRATED)
    near = int(np.searchsorted(kernels.start_ns, few.end_ns[-1] + REACH_NS)) if len(few) else 0
    kernels, group = kernels.first(near), group[:near]
    if not near:
        return Offset(0, None)
    ran = _busy_until(kernels)

    def by_busy(shift_ns: int) -> Any:
        fraction = _fraction(few.shifted(shift_ns), ran)
        return sparse.csr_matrix(np.stack([fraction, 1 - fraction], axis=1))

    def by_use(shift_ns: int) -> Any:
        return shares(few.shifted(shift_ns), kernels, group, groups)

    for name, course in courses:
        found = _best(by_busy if name == busy else by_use, course[: len(few)])
        if found is not None:
            return Offset(found, name)
    return Offset(0, None)


def _best(columns_at: Callable[[int], Any], values: Floats) -> int | None:
    """Return the shift with the least residual, or None if no shift explains the values or the best is at the edge."""
    if not len(values) or values.std() < _LEAST_DEVIATION:
        return None
    total = float(((values - values.mean()) ** 2).sum())

    def unexplained(shift_ns: int) -> float:
        columns = columns_at(shift_ns)
        normal = (columns.T @ columns).toarray()
        normal[np.diag_indices(len(normal))] += _RANK * max(normal.trace(), _RANK)
        use = np.linalg.solve(normal, columns.T @ values)
        return float(((values - columns @ use) ** 2).sum()) / total

    coarse = list(range(-REACH_NS, REACH_NS + 1, _COARSE_NS))
    middle = min(coarse, key=unexplained)
    if abs(middle) == REACH_NS:
        return None
    best = min(range(middle - _COARSE_NS, middle + _COARSE_NS + 1, _FINE_NS), key=unexplained)
    return best if unexplained(best) <= 1 - _LEAST_EXPLAINED else None
