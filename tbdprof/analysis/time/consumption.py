"""What steps consumed besides the run's own units: other units, padding, and the lengths of their sequences."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from tbdprof.facts.consumed import StepCountKind
from tbdprof.facts.recording import Recording, Window
from tbdprof.facts.records import Strings
from tbdprof.facts.rows import Table
from tbdprof.facts.windows import CLEAN, MEMORY
from tbdprof.results.time import Lengths


def totals(window: Window, strings: Strings, kind: StepCountKind, steps: Table | None = None) -> dict[str, float]:
    """Return the sum of each count of a kind over the window's steps, or over some of them, by name."""
    rows = _rows(window, kind)
    if steps is not None:
        rows = rows[np.isin(rows["step"], steps["index"])]
    return {strings[int(name)]: float(rows["value"][rows["name"] == name].sum()) for name in np.unique(rows["name"])}


def counted_in(window: Window, strings: Strings, unit: str) -> Table:
    """Return the window's steps with their count of another unit in place of the run's own."""
    steps, rows = window.table("step").copy(), _rows(window, StepCountKind.UNITS)
    mine = rows[np.array([strings[int(name)] == unit for name in rows["name"]], bool)]
    place = np.searchsorted(steps["index"], mine["step"])
    steps["units"] = 0
    np.add.at(steps["units"], place, mine["value"])
    return steps


def padding_shares(recording: Recording) -> Mapping[str, float]:
    """Return the share of padding in the units that the clean windows computed, by unit."""
    padding, units = dict[str, float](), dict[str, float]()
    for window in recording.named(CLEAN):
        own = {recording.run.unit: float(window.table("step")["units"].sum())}
        for name, value in totals(window, recording.strings, StepCountKind.PADDING).items():
            padding[name] = padding.get(name, 0.0) + value
        for name, value in (own | totals(window, recording.strings, StepCountKind.UNITS)).items():
            units[name] = units.get(name, 0.0) + value
    return {name: value / (value + units[name]) for name, value in padding.items() if units.get(name)}


def lengths(recording: Recording) -> tuple[Lengths, ...]:
    """Return the sequence lengths of the memory windows and of the whole run; empty if none were counted."""
    everywhere = _lengths(recording, recording.windows)
    seen = _lengths(recording, recording.named(MEMORY))
    return tuple(
        Lengths(name, tuple(np.unique(seen.get(name, np.zeros(0))).tolist()), float(all_.min()), float(all_.max()))
        for name, all_ in everywhere.items()
    )


def _lengths(recording: Recording, windows: list[Window]) -> dict[str, NDArray[np.float64]]:
    found: dict[str, list[NDArray[np.float64]]] = {}
    for window in windows:
        rows = _rows(window, StepCountKind.LENGTH)
        for name in np.unique(rows["name"]):
            found.setdefault(recording.strings[int(name)], []).append(rows["value"][rows["name"] == name])
    return {name: np.concatenate(values) for name, values in found.items()}


def _rows(window: Window, kind: StepCountKind) -> Table:
    rows = window.table("step_count")
    kept: Table = rows[rows["kind"] == kind]
    return kept
