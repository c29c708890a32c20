"""All results of the kernels windows together."""

from dataclasses import dataclass

from tbdprof.results.kernels import Group, LayerTime, LowUtilization, Utilization
from tbdprof.results.time import StepTime, Verdict


@dataclass(frozen=True, slots=True)
class Timing:
    """Where the time of a step goes, and how well the device is used in that time."""

    step_time: StepTime
    utilization: Utilization
    layers: tuple[LayerTime, ...]
    groups: tuple[Group, ...]
    low_utilization: LowUtilization | None
    verdict: Verdict
