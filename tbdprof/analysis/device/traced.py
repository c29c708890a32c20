"""What the tracer of a GPU's kernels reports about itself: lost records, and how far its clock may be off."""

from collections.abc import Iterator

from tbdprof.facts.counters import CLOCK_RESIDUAL, LOST
from tbdprof.facts.keys import ReasonFor
from tbdprof.facts.recording import Recording
from tbdprof.facts.windows import KERNELS
from tbdprof.results.device import Traced
from tbdprof.results.found import Found, because
from tbdprof.results.reasons import GPU_ONLY, NO_WINDOW

NO_KERNEL = "no kernel was reported in the kernels windows"


def traced(recording: Recording) -> Found[Traced | None]:
    """Return the lost records and the clock's residual, or why nothing traced a GPU's kernels."""
    lost, residuals = (list(_values(recording, counter)) for counter in (LOST, CLOCK_RESIDUAL))
    if lost and residuals:
        return Found(Traced(int(sum(lost)), max(residuals)))
    if recording.run.device == "cpu":
        return because(GPU_ONLY)
    return because(recording.missing.get(ReasonFor.KERNELS, NO_KERNEL if recording.named(KERNELS) else NO_WINDOW))


def _values(recording: Recording, counter: str) -> Iterator[float]:
    for window in recording.named(KERNELS):
        if len(window.table("kernel")):
            yield from recording.samples(window, counter)["value"].tolist()
