"""All results of the kernels windows together; the kernels themselves are let go."""

from dataclasses import dataclass

from tbdprof.analysis.groups import Group, groups
from tbdprof.analysis.kernels import gather
from tbdprof.analysis.layers import LayerTime, layers
from tbdprof.analysis.low_utilization import LowUtilization, low_utilization
from tbdprof.analysis.step_time import StepTime, step_time
from tbdprof.analysis.throughput import Throughput
from tbdprof.analysis.timeline import timeline
from tbdprof.analysis.utilization import Utilization, utilization
from tbdprof.analysis.verdict import Verdict, verdict
from tbdprof.recording import Recording


@dataclass(frozen=True, slots=True)
class Timing:
    """Where the time of a step goes, and how well the device is used meanwhile."""

    step_time: StepTime
    utilization: Utilization
    layers: tuple[LayerTime, ...]
    groups: tuple[Group, ...]
    low_utilization: LowUtilization | None
    verdict: Verdict


def timing(recording: Recording, throughput: Throughput | None) -> Timing | None:
    """Return the results of the kernels windows, None where no kernel of a counted step was told."""
    kernels = gather(recording)
    if kernels is None or not len(kernels) or not kernels.step_ns.sum():
        return None
    run = recording.run
    course = timeline(kernels)
    spent = step_time(kernels, course)
    judged = verdict(kernels, course, run.peaks)
    del course
    listed = groups(kernels, run.peaks)
    return Timing(
        step_time=spent,
        utilization=utilization(kernels, spent, throughput, run),
        layers=layers(kernels, run.peaks),
        groups=listed,
        low_utilization=low_utilization(kernels, listed, run.peaks),
        verdict=judged,
    )
