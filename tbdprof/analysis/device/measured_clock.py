"""The utilization of the peak at the clock that the device had in the kernels windows."""

from tbdprof.analysis.device.driver import clock
from tbdprof.analysis.time.utilization import at_clock
from tbdprof.facts.keys import ReasonFor
from tbdprof.facts.recording import Recording
from tbdprof.facts.windows import KERNELS
from tbdprof.results.found import Found
from tbdprof.results.kernels import Utilization
from tbdprof.results.reasons import GPU_ONLY

MEASURED_PEAK = "the peak was measured, not looked up for a clock"
NO_CLOCK = "the clock was not sampled in the kernels windows"


def at_measured_clock(recording: Recording, found: Utilization | None) -> Found[Utilization | None]:
    """Return the utilization with its value at the measured clock, or why there is no such value."""
    if found is None:
        return Found(None)
    run, measured = recording.run, clock(recording, KERNELS)
    clocked = at_clock(found, run, None if measured is None else measured.mean_hz)
    if clocked.flop is None or clocked.flop.at_clock is not None:
        return Found(clocked)
    is_looked_up = run.peaks is not None and run.peaks.clock_hz is not None
    unsampled = recording.missing.get(ReasonFor.SM_CLOCK, NO_CLOCK)
    reason = GPU_ONLY if run.device == "cpu" else unsampled if is_looked_up else MEASURED_PEAK
    return Found(clocked, dict.fromkeys(("mfu.at_clock", "fp32_flop.at_clock"), reason))
