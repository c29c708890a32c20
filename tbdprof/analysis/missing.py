"""Reasons for missing results: one for each null in the machine-readable report."""

from collections.abc import Mapping

from tbdprof.analysis.memory.accounting import left_out
from tbdprof.analysis.time.throughput import data_wait
from tbdprof.analysis.time.time_blocks import settled
from tbdprof.facts.recording import Recording
from tbdprof.facts.windows import CLEAN, COUNTED, KERNELS, MEMORY, WARMUP
from tbdprof.results.kernels import Counted
from tbdprof.results.levels import Levels
from tbdprof.results.memory import Memory
from tbdprof.results.reasons import (
    GPU_ONLY,
    NO_COMMUNICATION,
    NO_PRODUCTS,
    NO_SAMPLES,
    NO_SHARE,
    NO_WAIT,
    NO_WINDOW,
    NOT_ASKED_FOR,
    NOT_BY_COUNTER,
    NOT_BY_DRIVER,
    NOT_COUNTED,
    NOT_EXACT,
    NOT_IN_TABLE,
    NOT_JUDGED,
    NOT_REQUESTED,
    NOT_SAMPLED_ALIKE,
    NOT_TOLD,
    ONE_BLOCK,
    ONE_LEVEL,
    ONE_WINDOW,
    UNRECORDED,
)
from tbdprof.results.time import CpuUtilization, Overhead, Throughput
from tbdprof.results.timing import Timing

TOLD_TWICE = 0.001  # share of the step; clocks of microseconds cause a little overlap

OF_KERNELS = (
    "time",
    "time_by_layer",
    "kernels",
    "low_utilization",
    "verdict",
    "run.flops_per_sample",
    "run.flops_per_unit",
)
OF_UTILIZATION = ("utilization.device_busy", "utilization.fp32_flop", "utilization.mfu")


def reasons(
    recording: Recording,
    memory: Memory | None,
    throughput: Throughput | None,
    cpu: CpuUtilization | None,
    overheads: Mapping[str, Overhead | None],
    timing: Timing | None,
) -> dict[str, str]:
    """Return the reason for each missing result; a reason in the recording replaces one concluded here."""
    found = {
        **_of_run(recording, throughput, timing.utilization.precision if timing else None),
        **(_of_memory(recording, memory) if memory else {"memory": _without(recording, MEMORY)}),
        **(_of_throughput(recording, throughput) if throughput else {"throughput": _without(recording, CLEAN)}),
        **_of_overhead(overheads[MEMORY], MEMORY, "step"),
        **_of_overhead(overheads[KERNELS], KERNELS, "block"),
        **({"overhead.kernels_window": NO_WINDOW} if _never_meant(recording, KERNELS) else {}),
        **recording.missing,
        **(_of_timing(recording, timing) if timing else _without_kernels(recording)),
    }
    if cpu is None:
        found.setdefault("utilization.cpu", found.get("throughput", "not sampled in the clean windows"))
    others = left_out(recording)
    return found if others is None else {**found, "other devices": others}


def without_levels(recording: Recording, counted: Counted | None, levels: Levels | None) -> dict[str, str]:
    """Return the reasons for missing exact counts, and for levels that cannot be compared."""
    on_cpu = recording.run.device == "cpu"
    found = {}
    if counted is None:
        untold = (
            "the run recorded no kernels to compare the counted step with" if recording.named(COUNTED) else NOT_EXACT
        )
        found["counted"] = recording.missing.get("counted", GPU_ONLY if on_cpu else untold)
    if levels is None:
        found["levels"] = GPU_ONLY if on_cpu else ONE_LEVEL
        return found
    return found | _of_whole(levels, recording.missing, found.get("counted", NOT_BY_COUNTER))


def _of_whole(levels: Levels, missing: Mapping[str, str], uncounted: str) -> dict[str, str]:
    """Return the reason for each null mean of the levels."""
    pipes = {
        "sampled": (levels.sampled, missing.get("sampled", NOT_SAMPLED_ALIKE)),
        "counted": (levels.counted, uncounted),
        "device": (levels.device, missing.get("device.gpm", NOT_BY_DRIVER)),
    }
    told = {
        "flop.analytic": (levels.analytic_flop, NO_SHARE),
        "flop.counted": (levels.counted_flop, uncounted),
        "fp32_pipe.sampled_low": (levels.sampled.fp32_low, pipes["sampled"][1]),
        **{f"fp32_pipe.{level}": (pipe.fp32, reason) for level, (pipe, reason) in pipes.items()},
        **{f"tensor_pipe.{level}": (pipe.tensor, reason) for level, (pipe, reason) in pipes.items()},
    }
    return {f"levels.whole.{path}": reason for path, (value, reason) in told.items() if value is None}


def _of_run(recording: Recording, throughput: Throughput | None, seen: str | None) -> dict[str, str]:
    """Return the reason for each null fact of the run; `seen` is the precision of its matmuls and convolutions."""
    run = recording.run
    found = {f"run.{name}": NOT_TOLD for name in ("batch_size", "seed") if getattr(run, name) is None}
    if run.precision is None and seen is None:
        found["run.precision"] = NOT_TOLD
    if not any(item.trainable for item in run.parameters):
        found["run.parameters"] = "no trained parameter was seen"
    if run.settled is None:
        found["run.settled"] = NOT_JUDGED if run.settled_by else "the warm-up did not end"
    if throughput is None or throughput.drifted is None:
        found["run.drifted"] = ONE_WINDOW
    return found


def _of_memory(recording: Recording, memory: Memory) -> dict[str, str]:
    run, found = recording.run, dict[str, str]()
    if memory.independent_peak_bytes is None:
        found["independent_peak_bytes"] = run.independent_total or "the framework reports no running total"
    if run.whole_run_peak_bytes is None:
        found["whole_run_peak_bytes"] = NOT_COUNTED
    if memory.rounding_at_peak_bytes is None or memory.rounding_max_bytes is None:
        found["rounding"] = NOT_REQUESTED
    if memory.at_optimizer_step is None:
        found["at_optimizer_step"] = "no optimizer's step was seen in the memory window"
    return found


def _of_throughput(recording: Recording, throughput: Throughput) -> dict[str, str]:
    found = {} if throughput.rate.interval else {"throughput.ci95": ONE_BLOCK}
    if data_wait(recording) is None:
        found["throughput.data_wait"] = NOT_TOLD
    if throughput.samples_per_unit(recording.run) is None:
        found |= {"throughput.samples_per_s": NO_SAMPLES, "throughput.ci95": NO_SAMPLES}
    return found


def _of_overhead(overhead: Overhead | None, window: str, settles: str) -> dict[str, str]:
    path = f"overhead.{window}_window"
    if overhead is None:
        steps = f"steps after the {settles} that is discarded as warm-up"
        return {path: f"needs a {window} window with {steps}, next to a clean window"}
    return {} if overhead.interval else {f"{path}.ci95": ONE_BLOCK}


def _of_timing(recording: Recording, timing: Timing) -> dict[str, str]:
    """Return the reason for each null result of the kernels windows."""
    found, idle = dict[str, str](), timing.step_time.idle
    if timing.step_time.told_twice > TOLD_TWICE:
        found["kernels told twice"] = (
            f"kernels of one thread or stream overlap by {100 * timing.step_time.told_twice:.1f} % of the step"
        )
    told = {"synchronization": idle.synchronization, "copies": idle.copies}
    untold = GPU_ONLY if recording.run.device == "cpu" else NO_WAIT
    found |= {f"time.idle.{name}": untold for name, share in told.items() if share is None}
    if idle.communication is None:
        found["time.idle.communication"] = NO_COMMUNICATION
    use = timing.utilization
    if use.busy is None:
        found["utilization.device_busy"] = _without(recording, CLEAN)
    if use.flops_per_sample is None:
        found["run.flops_per_sample"] = NO_SAMPLES if use.flops_per_step else NO_PRODUCTS
    if use.flop is None or use.flop.value is None:
        found["utilization.mfu"] = found["utilization.fp32_flop"] = _without_flop(recording, timing)
    elif use.fp32 is None:
        found["utilization.fp32_flop"] = _computes_in(use.flop.precision, recording.run.precision)
    if timing.low_utilization is None:
        found["low_utilization"] = _without_flop(recording, timing)
    return found


def _without_flop(recording: Recording, timing: Timing) -> str:
    """Return why FLOPs cannot be compared with the device's peak."""
    run = recording.run
    if run.peaks is None:
        return recording.missing.get("peaks", "the device's peak was not looked for")
    precision = timing.utilization.precision
    if precision is None or not timing.utilization.flops_per_step:
        return NO_PRODUCTS
    is_looked_up = run.peaks.clock_hz is not None  # then the run has every known peak, requested or not
    why = run.peaks.sources.get(precision, NOT_IN_TABLE if is_looked_up else NOT_ASKED_FOR)
    return f"{_computes_in(precision, run.precision)}, and the peak of that is not known: {why}"


def _computes_in(precision: str, told: str | None) -> str:
    """Return the precision that a run computes in, and the requested one if it differs."""
    if told is None or told == precision:
        return f"the run computes in {precision}"
    return f"{told} was requested, but most matmuls and convolutions compute in {precision}"


def _without_kernels(recording: Recording) -> dict[str, str]:
    """Return the reason for each missing result of the kernels windows."""
    reason = recording.missing.get("kernels") or _no_kernels(recording)
    return dict.fromkeys((*OF_KERNELS, *OF_UTILIZATION), reason)


def _no_kernels(recording: Recording) -> str:
    windows = recording.named(KERNELS)
    if not windows:
        return _without(recording, KERNELS)
    if not any(len(settled(window.table("step"))) for window in windows):
        return "the run ended within the first block of the kernels window, which is discarded as warm-up"
    if recording.run.device != "cpu":
        return f"no kernel of {recording.run.device} was told: {recording.missing.get('activity', UNRECORDED)}"
    return "no operator ran in the counted steps of the kernels window"


def _without(recording: Recording, window: str) -> str:
    """Return why the windows of this name give no result."""
    if not any(len(item.table("step")) for item in recording.windows):
        return "no step was recorded: prof.step() was never called, or the run ended during warm-up"
    if recording.named(window):
        return (
            "no memory came or went in the window" if window == MEMORY else f"the {window} windows saw no whole block"
        )
    if window == KERNELS and _never_meant(recording, window):
        return NO_WINDOW
    return f"the run ended before a {window} window was complete: {_spent(recording)}"


def _never_meant(recording: Recording, window: str) -> bool:
    """Return whether a complete run has no window of this name."""
    return recording.run.complete and not any(item.name == window for item in recording.windows)


def _spent(recording: Recording) -> str:
    """Return how many steps the warm-up took, with advice."""
    warmup = sum(len(item.table("step")) for item in recording.windows if item.name == WARMUP)
    return f"{warmup} steps went to the warm-up; give the loop more, or fix the warm-up's length"
