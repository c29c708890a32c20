"""The memory of a trial."""

from tbdprof.results.advice import Trial
from tbdprof.results.compare import Change

PEAK_MEMORY = "peak_memory"


def trial_memory(trial: Trial) -> Change | None:
    """Return how the memory at the peak changed, None if it is not known."""
    figures = () if trial.pair is None else trial.pair.figures
    return next((each for each in figures if each.path == PEAK_MEMORY), None)
