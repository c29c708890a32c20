"""Reasons for missing results of the sampled level."""

from collections.abc import Sequence

from tbdprof.facts.counters import (
    PM_FP32_LITE,
)
from tbdprof.facts.recording import Recording
from tbdprof.facts.windows import SAMPLED
from tbdprof.results.levels import PipeUse
from tbdprof.results.reasons import GPU_ONLY, ONE_BLOCK
from tbdprof.results.sampled import ELAPSED, WHILE_BUSY, Sampled
from tbdprof.results.time import Overhead

NO_WINDOW = "no sampled window was recorded"
NO_SAMPLES = "no sample lies within the counted steps of the sampled window"
NO_OFFSET = (
    "the clocks of samples and of kernels could not be compared, and are taken to agree: "
    "an offset of 50 µs makes a use wrong by some 7 points"
)
PIPES = ("utilization.fp32_pipe", "utilization.tensor_pipe")
_UNTOLD = "this device's counters of it were not sampled"
_NEVER_BUSY = "neither kernels nor the device's busy counter were recorded"
_NOT_SAID = "the sampler did not report it"
_NEIGHBOURS = "needs a sampled window with steps after the block that is discarded as warm-up, next to a clean window"


def without_sampled(
    recording: Recording, found: Sampled | None, overhead: Overhead | None, pipes: Sequence[PipeUse | None]
) -> dict[str, str]:
    """Return the reason for each missing sampled result; `pipes` is the use of the FP32 and of the tensor pipe."""
    untold = [path for path, known in zip(PIPES, pipes, strict=True) if known is None]
    if recording.run.device == "cpu":
        return dict.fromkeys((SAMPLED, "overhead.sampled_window", *untold), GPU_ONLY)
    none = recording.missing.get(SAMPLED) or (NO_SAMPLES if recording.named(SAMPLED) else NO_WINDOW)
    reasons = dict.fromkeys(untold, none if found is None else _UNTOLD)
    if found is None or PM_FP32_LITE not in found.while_busy:
        reasons[f"{PIPES[0]}.low"] = none if found is None else _UNTOLD
    if overhead is None:
        reasons["overhead.sampled_window"] = none if found is None else _NEIGHBOURS
    elif overhead.interval is None:
        reasons["overhead.sampled_window.ci95"] = ONE_BLOCK
    return reasons | ({SAMPLED: none} if found is None else _not_all(found))


def _not_all(found: Sampled) -> dict[str, str]:
    """Return the reason for each null field of a sampled result."""
    means = {f"elapsed.{name}": _UNTOLD for name, counter in ELAPSED.items() if counter not in found.elapsed}
    for name, counter in (*WHILE_BUSY.items(), ("fp32_pipe_low", PM_FP32_LITE)):
        if counter not in found.while_busy:
            means[f"while_busy.{name}"] = _NEVER_BUSY if counter in found.elapsed else _UNTOLD
    own = {"lost": found.lost, "clock_residual_s": found.residual_ns}
    means |= {name: _NOT_SAID for name, value in own.items() if value is None}
    if found.reason is not None:
        means |= dict.fromkeys(("kernels", "kernels_busy", "offset"), found.reason)
    elif found.offset is not None and found.offset.found_by is None:
        means["offset"] = NO_OFFSET
    return {f"sampled.{name}": reason for name, reason in means.items()}
