"""How far a run is, from the records that it has written so far."""

from collections.abc import Sequence

from tbdprof.analysis.time.given import given
from tbdprof.analysis.time.throughput import cpu_utilization, throughput
from tbdprof.facts.recording import CUT_SHORT, OPEN, Recording, Window
from tbdprof.facts.windows import CLEAN, WARMUP
from tbdprof.results.time import Live

READS = ("step", "step_count", "sample")  # the kinds of records that `live` looks at
_BY_BLOCK = (WARMUP, CLEAN)  # windows whose steps are written while they last


def live(recording: Recording) -> Live:
    """Return how far a run is, and its throughput so far: that of the clean windows' blocks, an open one's too."""
    newest = recording.windows[-1] if recording.windows else None
    is_whole = newest is not None and newest.state == OPEN and newest.name not in _BY_BLOCK
    place = _place([window.name for window in recording.windows], [name for name, _ in recording.run.planned])
    so_far = Recording(recording.run, [_as_ended(each) for each in recording.windows], recording.strings)
    return Live(
        window=None if newest is None else newest.name,
        is_open=newest is not None and newest.state == OPEN,
        place=None if place is None else place + 1,
        planned_windows=len(recording.run.planned) or None,
        window_steps=None if newest is None or is_whole else len(newest.table("step")),
        planned_steps=None if place is None else recording.run.planned[place][1],
        steps=max(
            (int(rows["index"][-1]) + 1 for each in recording.windows if len(rows := each.table("step"))), default=0
        ),
        ended_windows=sum(window.state != OPEN for window in recording.windows),
        latest_per_s=_latest_per_s(recording),
        throughput=throughput(so_far, given(so_far)).value,
        cpu=cpu_utilization(recording).value,
    )


def _as_ended(window: Window) -> Window:
    """Return an open window that has blocks as one that was cut short after them."""
    has_blocks = window.state == OPEN and len(window.table("step"))
    return Window(window.ordinal, window.name, CUT_SHORT if has_blocks else window.state, window.tables)


def _place(names: Sequence[str], planned: Sequence[str]) -> int | None:
    """Return the place of the newest window among the planned ones; windows that could not begin are passed over."""
    place = -1
    for name in names:
        if name not in planned[place + 1 :]:
            return None
        place = planned.index(name, place + 1)
    return place if names else None


def _latest_per_s(recording: Recording) -> float | None:
    for window in reversed(recording.windows):
        steps = window.table("step")
        if window.name in _BY_BLOCK and len(steps):
            rows = steps[steps["block"] == steps["block"][-1]]
            return float(rows["units"].sum() / ((rows["end_ns"][-1] - rows["start_ns"][0]) / 1e9))
    return None
