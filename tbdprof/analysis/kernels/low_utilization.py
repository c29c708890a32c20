"""Long kernels whose utilization is below the average.

The source is the TBD paper (Zhu et al., IISWC 2018, arXiv:1803.06905), tables V and VI.
"""

from collections.abc import Sequence

import numpy as np

from tbdprof.analysis.kernels.kernels import Kernels
from tbdprof.analysis.kernels.sums import sums
from tbdprof.facts.records import Peaks
from tbdprof.results.found import Found, because
from tbdprof.results.kernels import Group, LowUtilization


def low_utilization(
    kernels: Kernels, listed: Sequence[Group], peaks: Peaks | None, why_no_peak: str
) -> Found[LowUtilization | None]:
    """Return the groups below the average, or `why_no_peak` if no kernel has both a count and a peak."""
    every = sums(kernels, np.zeros(len(kernels), np.int64), 1, peaks)
    possible = float(every.possible_flops[0])
    if not possible:
        return because(why_no_peak)
    average = float(every.reached_flops[0]) / possible
    found = LowUtilization(
        average=average,
        covered=float(every.reached_seconds[0] / every.seconds[0]),
        rows=tuple(group for group in listed if group.utilization is not None and group.utilization < average),
        uncounted=tuple(group for group in listed if group.utilization is None),
    )
    return Found(found)
