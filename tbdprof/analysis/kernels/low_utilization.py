"""The kernels to look at first: long ones whose utilization is below the average (tables V and VI of the TBD paper)."""

from collections.abc import Sequence

import numpy as np

from tbdprof.analysis.kernels.kernels import Kernels
from tbdprof.analysis.kernels.sums import sums
from tbdprof.facts.records import Peaks
from tbdprof.results.kernels import Group, LowUtilization


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
