"""All that only a page draws: series over time. They are worked out when a page is asked for, and never before."""

from tbdprof.analysis.device.over_time import over_time as device_over_time
from tbdprof.analysis.memory.over_time import over_time as memory_over_time
from tbdprof.analysis.time.course import course, windows
from tbdprof.analysis.time.one_step import one_step
from tbdprof.facts.recording import Recording
from tbdprof.results.pictures import Pictures
from tbdprof.results.reasons import GPU_ONLY


def pictures(recording: Recording) -> Pictures:
    """Return the pictures of a recording."""
    memory, step, times = memory_over_time(recording), one_step(recording), course(recording)
    device = tuple(device_over_time(recording))
    reasons = {"memory": memory.reason, "step": step.reason, "step_times": times.reason}
    if not device:
        reasons["device"] = GPU_ONLY if recording.run.device == "cpu" else "the device was not sampled"
    missing = {name: reason for name, reason in reasons.items() if reason is not None}
    return Pictures(memory.value, step.value, times.value, device, windows(recording), missing)
