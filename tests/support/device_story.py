"""Recordings of a GPU's windows as a fake driver would have reported them, at hand-made times."""

from collections.abc import Callable, Mapping
from itertools import pairwise

import numpy as np
from make import run, timed_window
from plain_rows import table

from tbdprof.facts import counters
from tbdprof.facts.recording import Recording, Window
from tbdprof.facts.records import Peaks, Strings

DEVICE = "cuda:0"
S = 1_000_000_000
PEAKS = Peaks({"fp32": 60e12}, 4.8e12, {"fp32": "a table", "memory": "its bus"}, 2e9)

Value = float | Callable[[float], float]


class DeviceStory:
    """Windows with samples; times are seconds, and a value may be a function of them."""

    def __init__(self) -> None:
        self.strings = Strings()
        self.windows: list[Window] = []

    def window(self, name: str, blocks: list[float], *, start_s: float = 0.0, units: float = 10.0) -> "DeviceStory":
        """Open a window whose blocks of one step take given seconds."""
        self.windows.append(timed_window(len(self.windows), name, blocks, units=units, start_s=start_s))
        return self

    def instants(self, counter: str, value: Value, times: np.ndarray, *, averaged_s: float = 0.0) -> "DeviceStory":
        """Sample a counter at some times."""
        rows = [(at, _at(value, at), at - averaged_s if averaged_s else None) for at in times.tolist()]
        return self._rows(counter, rows)

    def stretches(self, counter: str, value: Value, edges: list[float]) -> "DeviceStory":
        """Sample a counter of the time between each two edges; the value is that of the stretch's end."""
        return self._rows(counter, [(end, _at(value, end), start) for start, end in pairwise(edges)])

    def recording(self, missing: Mapping[str, str] | None = None, **changes: object) -> Recording:
        """Return the recording."""
        facts = {"device": DEVICE, "peaks": PEAKS, "precision": "fp32", "complete": True, **changes}
        return Recording(run(**facts), self.windows, self.strings, dict(missing or {}))

    def _rows(self, counter: str, rows: list[tuple[float, float, float | None]]) -> "DeviceStory":
        name, device = self.strings.add(counter), self.strings.add(DEVICE)
        samples = [
            (name, device, round(at * S), value, -1 if since is None else round(since * S)) for at, value, since in rows
        ]
        window = self.windows[-1]
        window.tables["sample"] = np.concatenate([window.table("sample"), table("sample", samples)])
        return self


def _at(value: Value, seconds: float) -> float:
    return value(seconds) if callable(value) else value


def steady(seconds: float = 10.0, *, watts: float = 500.0, counter_watts: float = 500.0) -> DeviceStory:
    """Return one clean window of 100 images a second at an even power, sampled every 100 ms and 200 ms beyond it."""
    story = DeviceStory().window("clean", [1.0] * round(seconds), units=100.0)
    times = np.arange(-2, round(seconds * 10) + 3) / 10
    story.instants(counters.POWER, watts, times)
    return story.instants(counters.ENERGY, lambda s: 1e6 + counter_watts * s, times)
