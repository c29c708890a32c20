"""By how much the counters of the host and of the loop grew over a window."""

from tbdprof.analysis.time.time_blocks import of_windows
from tbdprof.facts.counters import WAITED_FOR_CORE
from tbdprof.facts.recording import Recording, Window

MOST_WAITING = 0.99  # the clocks are read one after the other


def growth(recording: Recording, window: Window, counter: str) -> tuple[float, float]:
    """Return how much a counter grew over a window, and in how many seconds."""
    mine = recording.samples(window, counter)
    if len(mine) < 2:
        return 0.0, 0.0
    return float(mine["value"][-1] - mine["value"][0]), float(mine["time_ns"][-1] - mine["time_ns"][0]) / 1e9


def waited_share(recording: Recording, window: Window) -> float | None:
    """Return the share of a window's blocks in which the process waited for a core, None if it is not known."""
    waited, elapsed = growth(recording, window, WAITED_FOR_CORE)
    seconds = of_windows([window]).seconds.sum()
    return min(waited / float(seconds), MOST_WAITING) if elapsed and seconds else None
