"""A recording: the facts of one run, by window."""

from dataclasses import dataclass, field

import numpy as np

from tbdprof.facts.keys import is_remark
from tbdprof.facts.records import Run, Strings
from tbdprof.facts.rows import KINDS, Table
from tbdprof.facts.windows import WARMUP

STILL_RUNNING = "it is still running"
KILLED = "the process was killed"

OPEN, COMPLETE, CUT_SHORT = "open", "complete", "cut short"  # the states of a window
DAMAGED = "damaged"  # a window that was left out when its file was read; never in a file
STATES = {OPEN, COMPLETE, CUT_SHORT}


@dataclass(slots=True)
class Window:
    """A stretch of steps recorded in one way: "warmup" or another of `tbdprof.facts.windows`."""

    ordinal: int
    name: str
    state: str = OPEN  # CUT_SHORT: it ended before its steps were done
    tables: dict[str, Table] = field(default_factory=dict)

    def table(self, kind: str) -> Table:
        """Return the window's records of a kind, an empty array where there are none."""
        return self.tables.get(kind, np.zeros(0, KINDS[kind]))


@dataclass(slots=True)
class Recording:
    """All facts of a run. `missing` has what hooks and collectors report: reasons for missing facts, and remarks."""

    run: Run
    windows: list[Window] = field(default_factory=list)
    strings: Strings = field(default_factory=Strings)
    missing: dict[str, str] = field(default_factory=dict)

    def named(self, name: str) -> list[Window]:
        """Return the windows of a name that have ended, in order."""
        return [window for window in self.windows if window.name == name and window.state in (COMPLETE, CUT_SHORT)]

    def samples(self, window: Window, counter: str) -> Table:
        """Return a window's samples of a counter, those of all devices."""
        rows = window.table("sample")
        named: Table = rows[rows["counter"] == self.strings.find(counter)]
        return named

    def of_device(self, rows: Table, *devices: str) -> Table:
        """Return the rows that are of the run's device, or of the devices that are named."""
        mine = np.isin(rows["device"], [self.strings.find(device) for device in devices or (self.run.device,)])
        kept: Table = rows if mine.all() else rows[mine]
        return kept

    @property
    def early(self) -> list[Window]:
        """Return the windows of few steps before the judged warm-up: a loop that ends soon has no others."""
        warmups = [window.ordinal for window in self.windows if window.name == WARMUP]
        if not warmups:
            return []
        return self.windows[: warmups[-1]] if self.run.settled_by else self.windows

    @property
    def remarks(self) -> dict[str, str]:
        """Return what of `missing` is the reason for no missing result."""
        return {key: text for key, text in self.missing.items() if is_remark(key)}

    @property
    def lost_windows(self) -> list[str]:
        """Name the windows that began and whose records never arrived: `memory (window 2)`."""
        return [f"{window.name} (window {window.ordinal})" for window in self.windows if window.state == OPEN]
