"""The kernels to look at first: long ones whose utilization is below the average (tables V and VI of seed 003)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tbdprof.analysis.kernels.executions import Kernels
from tbdprof.analysis.kernels.groups import Group
from tbdprof.analysis.kernels.sums import sums
from tbdprof.facts.records import Peaks


@dataclass(frozen=True, slots=True)
class LowUtilization:
    """Kernels below the average, the longest first, and apart those without a count."""

    average: float  # over the time of the kernels that have a count
    covered: float  # share of all kernels' own time they have
    rows: tuple[Group, ...]
    uncounted: tuple[Group, ...]  # the longest first: they may be among the worst


def low_utilization(kernels: Kernels, found: Sequence[Group], peaks: Peaks | None) -> LowUtilization | None:
    """Return the groups below the average; None: no kernel has both a count and a peak."""
    every = sums(kernels, np.zeros(len(kernels), np.int64), 1, peaks)
    possible = float(every.possible_flops[0])
    if not possible:
        return None
    average = float(every.reached_flops[0]) / possible
    return LowUtilization(
        average=average,
        covered=float(every.reached_seconds[0] / every.seconds[0]),
        rows=tuple(group for group in found if group.utilization is not None and group.utilization < average),
        uncounted=tuple(group for group in found if group.utilization is None),
    )
