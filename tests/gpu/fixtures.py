"""Small recordings cut from real ones, for tests that need a card's facts and no card."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tbdprof.facts.file.placing import save
from tbdprof.facts.recording import Recording, Window
from tbdprof.facts.records import Strings
from tbdprof.facts.rows import Table

MOST_BYTES = 300_000
TEXTS: Mapping[str, tuple[str, ...]] = {
    "span": ("name", "shapes", "work"),
    "allocation": ("device", "shape"),
    "owner": ("device", "name", "shape"),
    "sample": ("counter", "device"),
    "kernel": ("name", "device", "grid", "block"),
    "count": ("counter",),
}


def parted(recording: Recording) -> dict[str, Recording]:
    """Return a recording of the memory windows and one of all others, so that each can be small."""
    parts = {"memory": recording.named("memory")}
    parts["time"] = [window for window in recording.windows if window.name not in ("memory", "warmup")]
    return {
        name: Recording(recording.run, windows, recording.strings, dict(recording.missing))
        for name, windows in parts.items()
        if windows
    }


def trimmed(recording: Recording, path: Path, most_bytes: int = MOST_BYTES) -> int | None:
    """Write as many steps of a recording as fit, and return the size; None: not even two of each window do."""
    for blocks in (5, 3, 2):
        save(cut(recording, blocks), path, force=True)
        if path.stat().st_size <= most_bytes:
            return path.stat().st_size
    path.unlink()
    return None


def cut(recording: Recording, blocks: int) -> Recording:
    """Return a recording with the first step of each of the first blocks of every window, and the text that needs."""
    strings = Strings()
    windows = [_cut(window, blocks, recording.strings, strings) for window in recording.windows]
    return Recording(recording.run, windows, strings, dict(recording.missing))


def _cut(window: Window, blocks: int, texts: Strings, strings: Strings) -> Window:
    steps = window.table("step")
    kept = _kept_steps(window.name, steps, blocks)
    tables = {kind: _within(kind, rows, kept, window.name) for kind, rows in window.tables.items() if len(steps)}
    tables = tables or dict(window.tables)  # a window without steps is one of counts
    tables |= {"step": kept} if len(steps) else {}
    return Window(
        window.ordinal,
        window.name,
        window.state,
        {kind: _translated(kind, rows, texts, strings) for kind, rows in tables.items()},
    )


def _kept_steps(name: str, steps: Table, blocks: int) -> Table:
    """Return the first steps of a memory window, whose order must not have holes, and of others one a block."""
    if name == "memory":
        first: Table = steps[:blocks]
        return first
    _, places = np.unique(steps["block"], return_index=True)
    chosen: Table = steps[places[:blocks]]
    return chosen


def _within(kind: str, rows: Table, steps: Table, window: str) -> Table:
    """Return the records of some steps: by their order in a memory window, else by their time."""
    if kind == "step" or not len(rows):
        return rows
    if window == "memory" and kind in ("allocation", "owner", "span"):
        column = "first_sequence" if kind == "span" else "sequence"
        kept: Table = rows[rows[column] <= steps["last_sequence"].max()]
        return kept
    if kind == "sample":
        return rows[: 40 * len(steps)]
    if kind not in ("span", "kernel"):
        return rows
    place = np.searchsorted(steps["start_ns"], rows["start_ns"], side="right") - 1
    inside = (place >= 0) & (rows["start_ns"] < steps["end_ns"][place])
    return rows[inside]


def _translated(kind: str, rows: Table, texts: Strings, strings: Strings) -> Table:
    """Return rows whose text is that of another recording."""
    translated = rows.copy()
    for column in TEXTS.get(kind, ()):
        values, place = np.unique(rows[column], return_inverse=True)
        moved = [strings.add(texts[int(value)]) if value >= 0 else -1 for value in values]
        translated[column] = np.array(moved, translated[column].dtype)[place] if len(values) else translated[column]
    return translated
