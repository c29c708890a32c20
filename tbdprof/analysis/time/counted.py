"""By how much the counters of the host and of the loop grew over a window."""

from tbdprof.facts.recording import Recording, Window


def growth(recording: Recording, window: Window, counter: str) -> tuple[float, float]:
    """Return how much a counter grew over a window, and in how many seconds."""
    mine = recording.samples(window, counter)
    if len(mine) < 2:
        return 0.0, 0.0
    return float(mine["value"][-1] - mine["value"][0]), float(mine["time_ns"][-1] - mine["time_ns"][0]) / 1e9
