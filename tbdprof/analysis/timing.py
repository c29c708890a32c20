"""All results of the kernels windows together; the kernels themselves are not kept."""

from tbdprof.analysis.kernels.executions import gather
from tbdprof.analysis.kernels.fused import fused_kernels
from tbdprof.analysis.kernels.groups import groups
from tbdprof.analysis.kernels.layers import layers
from tbdprof.analysis.kernels.low_utilization import low_utilization
from tbdprof.analysis.time.given import Given
from tbdprof.analysis.time.step_time import step_time
from tbdprof.analysis.time.throughput import cpu_utilization, data_wait
from tbdprof.analysis.time.time_blocks import settled
from tbdprof.analysis.time.timeline import timeline
from tbdprof.analysis.time.utilization import utilization, why_no_flop
from tbdprof.analysis.time.verdict import verdict
from tbdprof.analysis.without import why_without
from tbdprof.facts.keys import ReasonFor
from tbdprof.facts.recording import Recording
from tbdprof.facts.windows import KERNELS
from tbdprof.results.found import Found
from tbdprof.results.reasons import ONE_STEP, SEVERAL, UNRECORDED
from tbdprof.results.summary import Timing
from tbdprof.results.time import Throughput

# Where the report has these results.
PARTS = (
    *("time", "time_by_layer", "kernels", "low_utilization", "verdict", "run.flops_per_sample", "run.flops_per_unit"),
    "run.update_flops_per_step",
    *("utilization.device_busy", "utilization.fp32_flop", "utilization.mfu"),
)


def timing(recording: Recording, steps: Found[Given], throughput: Throughput | None) -> Found[Timing | None]:
    """Return the results of the kernels windows, or why no kernel of a counted step was reported.

    The paths of the reasons begin at the report's top, because the report has these results in several parts.
    """
    kernels = gather(recording)
    if kernels is None or not len(kernels) or not kernels.step_ns.sum():
        return Found(None, dict.fromkeys(PARTS, recording.missing.get(ReasonFor.KERNELS) or _why_no_kernels(recording)))
    run = recording.run
    course = timeline(kernels)
    spent = step_time(kernels, course)
    use = utilization(kernels, spent.value, throughput, recording, steps)
    load = cpu_utilization(recording).value
    others = load.others if load is not None and load.disturbed else 0.0
    judged = verdict(kernels, course, run.peaks, _starved(recording, use.value.busy), others)
    del course
    listed = groups(kernels, run.peaks, fused_kernels(recording))
    low = low_utilization(kernels, listed, run.peaks, why_no_flop(recording, use.value))
    found = Timing(
        step_time=spent.value,
        utilization=use.value,
        layers=layers(kernels, run.peaks),
        groups=listed,
        low_utilization=low.value,
        verdict=judged,
    )
    missing = spent.under("time") | use.under("utilization") | low.under("low_utilization")
    if judged.bound_by is None:
        missing["verdict.bound_by"] = SEVERAL
    if None in judged.intervals.values():
        missing["verdict.intervals"] = ONE_STEP
    return Found(found, missing, spent.remarks)


def _why_no_kernels(recording: Recording) -> str:
    windows = recording.named(KERNELS)
    if not windows:
        return why_without(recording, KERNELS)
    if not any(len(settled(window.table("step"))) for window in windows):
        return "the run ended within the first block of the kernels window, which is discarded as warm-up"
    if recording.run.device != "cpu":
        return (
            f"no kernel of {recording.run.device} was reported: {recording.missing.get(ReasonFor.ACTIVITY, UNRECORDED)}"
        )
    return "no operator ran in the counted steps of the kernels window"


def _starved(recording: Recording, busy: float | None) -> float | None:
    """Return the share of the clean steps that was spent waiting for a batch, or None if it is unknown.

    A device with queued kernels keeps running while its host waits, so the share is at most the device's idle share.
    """
    waited, run = data_wait(recording).value, recording.run
    if waited is None:
        return None
    if run.device == "cpu" and not run.runs_ahead:
        return min(waited, 1.0)
    return None if busy is None else min(waited, max(0.0, 1 - busy))
