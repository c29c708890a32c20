"""All results of the kernels windows together; the kernels themselves are not kept."""

from tbdprof.analysis.kernels.executions import gather
from tbdprof.analysis.kernels.groups import groups
from tbdprof.analysis.kernels.layers import layers
from tbdprof.analysis.kernels.low_utilization import low_utilization
from tbdprof.analysis.time.step_time import step_time
from tbdprof.analysis.time.throughput import data_wait
from tbdprof.analysis.time.timeline import timeline
from tbdprof.analysis.time.utilization import utilization
from tbdprof.analysis.time.verdict import verdict
from tbdprof.facts.recording import Recording
from tbdprof.results.time import Throughput
from tbdprof.results.timing import Timing


def timing(recording: Recording, throughput: Throughput | None) -> Timing | None:
    """Return the results of the kernels windows, or None if no kernel of a counted step was reported."""
    kernels = gather(recording)
    if kernels is None or not len(kernels) or not kernels.step_ns.sum():
        return None
    run = recording.run
    course = timeline(kernels)
    spent = step_time(kernels, course)
    use = utilization(kernels, spent, throughput, run)
    judged = verdict(kernels, course, run.peaks, _starved(recording, use.busy))
    del course
    listed = groups(kernels, run.peaks)
    return Timing(
        step_time=spent,
        utilization=use,
        layers=layers(kernels, run.peaks),
        groups=listed,
        low_utilization=low_utilization(kernels, listed, run.peaks),
        verdict=judged,
    )


def _starved(recording: Recording, busy: float | None) -> float | None:
    """Return the share of the clean steps that was spent waiting for a batch, or None if it is unknown.

    A device with queued kernels keeps running while its host waits, so the share is at most the device's idle share.
    """
    waited, run = data_wait(recording), recording.run
    if waited is None:
        return None
    if run.device == "cpu" and not run.runs_ahead:
        return min(waited, 1.0)
    return None if busy is None else min(waited, max(0.0, 1 - busy))
