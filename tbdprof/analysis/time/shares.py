"""What each counted step's time went to, step by step, so that the steps say how sure the shares are.

Every instant of a step has one share:

- communication, copies (to or from a GPU): they run while nothing else does.
- data: the framework's data loader, and all else that precedes the forward pass, whether or not a kernel runs.
- launching: no kernel runs although forward, backward or update has begun. It is also the share of kernels so short
  that their time is the cost of launching them, and of bookkeeping of any length.
- compute, memory: kernels above and below the ridge of the roofline. If bytes or peaks are not known, the operation
  decides: arithmetic limits matmuls and convolutions, memory limits element-wise operations.
- uncounted: kernels for which none of this is known.
- other: what is outside of all these phases, and the time after a step's last kernel. If no forward pass was seen,
  kernels outside count as training.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tbdprof.analysis.kernels.kernels import PRODUCTS, Kernels
from tbdprof.analysis.kernels.roofline import ridge
from tbdprof.analysis.kernels.sums import by_precision
from tbdprof.analysis.time.timeline import DATA, OTHER, PHASES, Timeline
from tbdprof.facts.arrays import Bools, Floats, Rows, ranked
from tbdprof.facts.records import Operation, Peaks, Phase

# The launch limits a kernel that is shorter than this. A launch on a GPU takes about 5 µs. An operator on the CPU that
# does nothing takes 2 to 13 µs under torch's profiler (tried), so half of an operator of this length is overhead.
SHORT_NS = {"gpu": 10_000, "cpu": 20_000}

BY_ELEMENT = (
    *(Operation.CAST, Operation.ACCUMULATE, Operation.EMBEDDING, Operation.NORMALIZATION, Operation.ACTIVATION),
    *(Operation.POOLING, Operation.SOFTMAX, Operation.LOSS, Operation.ELEMENTWISE, Operation.REDUCTION),
    *(Operation.OPTIMIZER, Operation.COPY),
)
KINDS = ("launching", "compute", "memory", "uncounted")  # of kernels
LAUNCHING, COMPUTE, MEMORY, UNCOUNTED = range(len(KINDS))
TRAINING = tuple(PHASES.index(name) for name in ("forward", "backward", "recompute", "update"))
FEWEST = 3  # steps from which a kernel's typical length is known


@dataclass(frozen=True, slots=True)
class Parts:
    """What the time of each counted step went to, in nanoseconds; the parts of a step add up to it."""

    ns: Mapping[str, Floats]
    step_ns: Floats
    idle_data: float  # share of the data in which no kernel runs
    gaps: float  # share of all steps in which the host has no kernel running
    phases: Mapping[str, str]  # by kind of kernel: the phase in which most of it runs

    def shares(self) -> dict[str, float]:
        """Return the shares of all steps together."""
        wall = float(self.step_ns.sum())
        return {name: float(each.sum()) / wall for name, each in self.ns.items()}


def parts(kernels: Kernels, course: Timeline, peaks: Peaks | None) -> Parts:
    """Return what each step went to; concurrent kernels share their time in proportion to their own times."""
    apart = {"communication": course.only_communication}
    if kernels.device != "cpu":
        apart["copies"] = course.only_copies
    left = ~np.any([*apart.values()], axis=0)
    data = course.loading | (course.phase == DATA)
    trained = np.isin(course.phase, TRAINING) & ~data
    if not _has_forward(kernels):
        trained |= (course.phase == OTHER) & course.busy

    of_steps = _slices(course.step, kernels.steps)

    def spent(chosen: Bools) -> Floats:
        return np.array([course.length_ns[each][chosen[each]].sum() for each in of_steps], np.float64)

    kind = kinds(kernels, peaks)
    gaps, busy = spent(left & trained & ~course.busy), spent(left & trained & course.busy)
    of_kinds = busy[:, None] * _mixture(kernels, kind)
    before, idle_before = spent(left & data), spent(left & data & ~course.busy)
    found = {
        "data": before,
        **{name: of_kinds[:, place] for place, name in enumerate(KINDS)},
        **{name: spent(pieces) for name, pieces in apart.items()},
        "other": spent(left & ~data & ~trained),
    }
    found["launching"] = found["launching"] + gaps
    wall = spent(np.ones(len(data), bool))
    return Parts(
        ns=found,
        step_ns=wall,
        idle_data=float(idle_before.sum() / before.sum()) if before.any() else 0.0,
        gaps=float(gaps.sum() / wall.sum()),
        phases=dict(_longest_phases(kernels, kind)),
    )


def _slices(step: Rows, steps: int) -> list[slice]:
    """Return where each step's pieces are, which are in the order of time."""
    bounds = np.searchsorted(step, np.arange(steps + 1)).tolist()
    return [slice(*each) for each in pairwise(bounds)]


def short_ns(kernels: Kernels) -> int:
    """Return the length below which a kernel counts as launching."""
    return SHORT_NS["cpu" if kernels.device == "cpu" else "gpu"]


def kinds(kernels: Kernels, peaks: Peaks | None) -> NDArray[np.int8]:
    """Return the index in KINDS of each kernel."""
    known = np.isin(kernels.operation, (*PRODUCTS, *BY_ELEMENT)) | np.isfinite(kernels.flops)
    found = np.where(is_limited_by_compute(kernels, peaks), np.int8(COMPUTE), np.int8(MEMORY))
    found[~known] = UNCOUNTED
    found[(typical_ns(kernels) < short_ns(kernels)) | (kernels.operation == Operation.BOOKKEEPING)] = LAUNCHING
    return found


def typical_ns(kernels: Kernels) -> Floats:
    """Return the median own time of each kernel and its counterparts in the other steps.

    Another process may interrupt a kernel of microseconds for milliseconds; the kernel is short all the same. The
    counterpart is the same occurrence of its name in its phase, where all of at least three steps have equally many.
    """
    own, found = kernels.own_ns, kernels.own_ns.astype(np.float64)
    if kernels.steps < FEWEST:
        return found
    _, name = ranked(kernels.name.astype(np.int64) * (max(Phase) + 1) + kernels.phase)
    order = np.lexsort((kernels.step, name)).astype(np.int32)  # stable: of one step in the order of their starts
    counts = np.bincount(name * kernels.steps + kernels.step, minlength=(name.max() + 1) * kernels.steps)
    by_step = counts.reshape(-1, kernels.steps)
    alike = (by_step == by_step[:, :1]).all(axis=1)
    chosen = order[alike[name[order]]]  # by name, then step, then occurrence
    times_of = by_step[:, 0][name[chosen]]
    for times in np.unique(by_step[alike, 0]):
        mine = chosen[times_of == times].reshape(-1, kernels.steps, times)
        found[mine] = np.median(own[mine], axis=1)[:, None, :]
    return found


def is_limited_by_compute(kernels: Kernels, peaks: Peaks | None) -> Bools:
    """Return which kernels are above the ridge; if that is unknown, which compute matmuls or convolutions."""
    ridges = by_precision(kernels, lambda precision, product: ridge(peaks, precision, product=product))
    least_flops = ridges * kernels.moved_bytes
    above: Bools = kernels.flops >= least_flops
    unknown = np.isnan(kernels.flops) | np.isnan(least_flops)
    return np.where(unknown, np.isin(kernels.operation, PRODUCTS), above)


def _mixture(kernels: Kernels, kind: NDArray[np.int8]) -> Floats:
    """Return the kinds' shares of the own time of each step's training kernels, without communication and copies.

    A step without any has the shares of all steps together: kernels of a GPU may run in the step after theirs.
    """
    own = np.where(_trains(kernels), kernels.own_ns, 0)
    sums = np.bincount(kernels.step * len(KINDS) + kind, own, kernels.steps * len(KINDS)).reshape(-1, len(KINDS))
    whole = sums.sum(axis=0)
    if not whole.any():
        whole[UNCOUNTED] = 1
    sums[~sums.any(axis=1)] = whole
    mixture: Floats = sums / sums.sum(axis=1, keepdims=True)
    return mixture


def _longest_phases(kernels: Kernels, kind: NDArray[np.int8]) -> Mapping[str, str]:
    found = {}
    for place, name in enumerate(KINDS):
        mine = _trains(kernels) & (kind == place)
        if mine.any():
            longest = np.bincount(kernels.phase[mine], kernels.own_ns[mine]).argmax()
            found[name] = Phase(int(longest)).name.lower()
    return found


def _trains(kernels: Kernels) -> Bools:
    left_out = (kernels.operation == Operation.COMMUNICATION) | kernels.crosses
    beside = (Phase.OUTSIDE, Phase.DATA) if _has_forward(kernels) else (Phase.DATA,)
    trains: Bools = ~np.isin(kernels.phase, beside) & ~left_out
    return trains


def _has_forward(kernels: Kernels) -> bool:
    """Return whether a forward pass was seen; without a call of a model, its operators are outside of all phases."""
    return bool((kernels.phase == Phase.FORWARD).any())
