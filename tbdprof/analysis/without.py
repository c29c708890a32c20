"""Why the windows of a name give no result."""

from tbdprof.facts.recording import DAMAGED, Recording
from tbdprof.facts.windows import KERNELS, WARMUP
from tbdprof.results.reasons import NO_WINDOW


def why_without(recording: Recording, window: str, recorded: str | None = None) -> str:
    """Return why the windows of this name give no result; `recorded` is the reason if there are any."""
    if any(item.name == window and item.state == DAMAGED for item in recording.windows) and not recording.named(window):
        return f"the {window} window is left out, because the file is damaged"
    if not any(len(item.table("step")) for item in recording.windows):
        return "no step was recorded: prof.step() was never called, or the run ended during warm-up"
    if recording.named(window):
        return recorded or f"the {window} windows saw no whole block"
    if window == KERNELS and was_never_meant(recording, window):
        return NO_WINDOW
    return f"the run ended before a {window} window was complete: {_spent(recording)}"


def was_never_meant(recording: Recording, window: str) -> bool:
    """Return whether a complete run has no window of this name."""
    return recording.run.complete and not any(item.name == window for item in recording.windows)


def _spent(recording: Recording) -> str:
    """Return how many steps there were and how many of them the warm-up took, with advice."""
    steps = [(item.name, len(item.table("step"))) for item in recording.windows]
    warmup = sum(number for name, number in steps if name == WARMUP)
    advice = "give the loop more" if recording.early[1:] else "give the loop more, or fix the warm-up's length"
    return f"{warmup} of {sum(number for _, number in steps)} steps went to the warm-up; {advice}"
