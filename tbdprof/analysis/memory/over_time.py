"""Memory over time for the page: roles at some instants of the window with the highest peak, and what is live there.

A window can have a million events. Of each of `STRETCHES` equal parts the instants with the most and with the fewest
bytes are kept, and the peak itself. Of the blocks that are live at any of these, the `LISTED` largest are listed one by
one; the others are added up, so that nothing is lost of any sum.
"""

from collections.abc import Iterator

import numpy as np

from tbdprof.analysis.memory.account import Account
from tbdprof.analysis.memory.accounting import account, windows_with_events
from tbdprof.analysis.memory.holdings import described
from tbdprof.analysis.memory.peak import Height, height
from tbdprof.analysis.without import why_without
from tbdprof.facts.arrays import Ints
from tbdprof.facts.recording import Recording
from tbdprof.facts.records import Phase, Role, SpanKind
from tbdprof.facts.windows import MEMORY
from tbdprof.results.found import Found, because
from tbdprof.results.pictures import Band, Lifetimes, MemoryOverTime

STRETCHES = 700
LISTED = 12_000
MOST_PHASES = 600


def over_time(recording: Recording) -> Found[MemoryOverTime | None]:
    """Return the memory of the window with the highest peak, or why there is none."""
    windows = windows_with_events(recording)
    settled = [window for window in windows if len(window.table("step")) > 1] or windows
    if not settled:
        return because(why_without(recording, MEMORY, "no memory came or went in the window"))
    highest: tuple[int, Account, Height] | None = None
    for window in settled:
        worked = account(recording, window)
        found = height(recording, worked)
        size = found.peak_bytes(worked)
        if highest is None or size > highest[0]:
            highest = size, worked, found
    assert highest is not None
    return Found(_of_window(highest[1], highest[2]))


def _of_window(worked: Account, heights: Height) -> MemoryOverTime:
    kept = _kept(worked, heights)
    first, last = _lifetimes(worked, kept)
    live = np.flatnonzero(first <= last)
    order = live[np.argsort(-worked.blocks.size_bytes[live], kind="stable")]
    listed, others = order[:LISTED], order[LISTED:]
    unlisted, count = _added_up(worked, others, first, last, len(kept))
    series = {role: worked.series(role)[kept] for role in Role}
    return MemoryOverTime(
        window=worked.window.ordinal,
        events=int(worked.counted.sum()),
        time_ns=worked.levels.time_ns[kept],
        roles={role: values for role, values in series.items() if values.any()},
        rounding=worked.levels.rounding_bytes[kept].astype(np.int64),
        peak=int(np.searchsorted(kept, heights.peak_row)),
        listed=Lifetimes(first[listed], last[listed], tuple(described(worked, listed))),
        blocks=len(live),
        unlisted_bytes=unlisted,
        unlisted_blocks=count,
        unreported_bytes=_unreported(worked, kept),
        steps=tuple(_steps(worked)),
        phases=tuple(_phases(worked, kept)),
    )


def _kept(worked: Account, heights: Height) -> Ints:
    """Return the events whose instants are kept, in order."""
    rows, total = np.flatnonzero(worked.counted), heights.total
    if len(rows) <= 2 * STRETCHES:
        return rows
    stretches = np.array_split(rows, STRETCHES)
    ends = [rows[0], rows[-1], heights.peak_row]
    most = [stretch[np.argmax(total[stretch])] for stretch in stretches]
    fewest = [stretch[np.argmin(total[stretch])] for stretch in stretches]
    return np.unique(np.array([*ends, *most, *fewest], np.int64))


def _lifetimes(worked: Account, kept: Ints) -> tuple[Ints, Ints]:
    """Return each block's first and last kept instant; the first is beyond the last where it is live at none."""
    at = worked.levels.sequence[kept]
    first = np.searchsorted(at, worked.blocks.start, side="left")
    last = np.searchsorted(at, worked.blocks.end, side="left") - 1
    return first, last


def _added_up(worked: Account, others: Ints, first: Ints, last: Ints, instants: int) -> tuple[dict[Role, Ints], Ints]:
    """Return the bytes by role, and the number, of some blocks that are live at each kept instant."""
    roles, sizes = worked.roles[others], worked.blocks.size_bytes[others]
    count = _running(first[others], last[others], np.ones(len(others), np.int64), instants)
    found = {}
    for role in np.unique(roles):
        mine = others[roles == role]
        found[Role(int(role))] = _running(first[mine], last[mine], sizes[roles == role], instants)
    return found, count


def _running(first: Ints, last: Ints, amount: Ints, instants: int) -> Ints:
    change = np.zeros(instants + 1, np.int64)
    np.add.at(change, first, amount)
    np.subtract.at(change, last + 1, amount)
    return np.cumsum(change)[:instants]


def _unreported(worked: Account, kept: Ints) -> dict[Role, Ints]:
    """Return the bytes of the framework's total without a reported block, by the role that `Account.series` gives."""
    found = {
        Role.WORKSPACE: worked.scratch_bytes[kept].astype(np.int64),
        Role.UNKNOWN: np.maximum(worked.unknown_bytes[kept], 0).astype(np.int64),
    }
    return {role: sizes for role, sizes in found.items() if sizes.any()}


def _steps(worked: Account) -> Iterator[Band]:
    steps = np.sort(worked.window.table("step"), order="start_ns")
    for row in steps[1:] if len(steps) > 1 else steps:
        yield Band(f"step {int(row['index'])}", int(row["start_ns"]), int(row["end_ns"]))


def _phases(worked: Account, kept: Ints) -> Iterator[Band]:
    """Yield the longest phases of the counted steps, in the order of time; without any, none is known."""
    rows, time = worked.tree.rows, worked.levels.time_ns[kept]
    inside = (rows["end_ns"] > time.min()) & (rows["start_ns"] < time.max())
    rows = rows[(rows["kind"] == SpanKind.PHASE) & (rows["phase"] != Phase.OUTSIDE) & inside]
    longest = np.argsort(rows["start_ns"] - rows["end_ns"], kind="stable")[:MOST_PHASES]
    for row in np.sort(rows[longest], order="start_ns"):
        yield Band(Phase(int(row["phase"])).name.lower(), int(row["start_ns"]), int(row["end_ns"]))
