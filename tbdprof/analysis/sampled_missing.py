"""Why nothing of the sampled level is told, or not all of it, and what the driver's own word stands in for."""

from tbdprof.analysis.levels import Pipes
from tbdprof.analysis.missing import GPU_ONLY, ONE_BLOCK
from tbdprof.analysis.sampled import Sampled
from tbdprof.analysis.throughput import Overhead
from tbdprof.counters import PM_FP32, PM_TENSOR
from tbdprof.plan import SAMPLED
from tbdprof.recording import Recording

NO_WINDOW = "no sampled window was recorded"
NO_SAMPLES = "no sample lies within the counted steps of the sampled window"
NO_OFFSET = (
    "the clocks of samples and of kernels could not be compared, and are taken to agree: "
    "an offset of 50 µs makes a use wrong by some 7 points"
)
PIPES = ("utilization.fp32_pipe", "utilization.tensor_pipe")
_UNTOLD = "this device's counters of it were not sampled"


def without_sampled(
    recording: Recording, found: Sampled | None, overhead: Overhead | None, device: Pipes
) -> dict[str, str]:
    """Return the reason for what the sampled windows do not tell; `device` has the driver's own word on the pipes."""
    untold = [path for path, known in zip(PIPES, told(found, device), strict=True) if known is None]
    if recording.run.device == "cpu":
        return dict.fromkeys((SAMPLED, "overhead.sampled_window", *untold), GPU_ONLY)
    none = recording.missing.get(SAMPLED) or (NO_SAMPLES if recording.named(SAMPLED) else NO_WINDOW)
    reasons = dict.fromkeys(untold, none if found is None else _UNTOLD)
    if overhead is None:
        reasons["overhead.sampled_window"] = none
    elif overhead.interval is None:
        reasons["overhead.sampled_window.ci95"] = ONE_BLOCK
    if found is None:
        reasons[SAMPLED] = none
    elif found.reason is not None:
        reasons["sampled.kernels"] = found.reason
    elif found.offset is not None and found.offset.found_by is None:
        reasons["sampled.offset"] = NO_OFFSET
    return reasons


def told(found: Sampled | None, device: Pipes) -> tuple[tuple[float, str] | None, tuple[float, str] | None]:
    """Return the use of the FP32 and of the tensor pipe while kernels ran, each with its level, None where not told."""
    use = {} if found is None else found.while_busy
    own = {PM_FP32: device.fp32, PM_TENSOR: device.tensor}

    def level(counter: str) -> tuple[float, str] | None:
        if counter in use:
            return use[counter], SAMPLED
        value = own[counter]
        return None if value is None else (value, "device")

    return level(PM_FP32), level(PM_TENSOR)
