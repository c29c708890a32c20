"""Build the account of a memory window: its blocks, their roles, and the bytes live after each event."""

from collections import Counter
from dataclasses import replace

import numpy as np

from tbdprof.analysis.memory.account import Account
from tbdprof.analysis.memory.blocks import (
    NEVER,
    Blocks,
    Levels,
    in_order,
    lifetimes,
)
from tbdprof.analysis.memory.roles import classify, owned, with_earlier_batches
from tbdprof.analysis.memory.turns import turns
from tbdprof.analysis.spans import SpanTree
from tbdprof.facts.arrays import Bools, Ints, narrowed
from tbdprof.facts.recording import Recording, Window
from tbdprof.facts.records import AllocationKind, Run, SpanKind
from tbdprof.facts.rows import Table
from tbdprof.facts.windows import MEMORY


def devices(run: Run) -> tuple[str, ...]:
    """Return the devices whose memory is the run's."""
    return tuple(run.devices) or (run.device,)


def of_device(recording: Recording, window: Window) -> Window:
    """Return a window with the allocations and owners of the run's devices alone."""
    mine_are = devices(recording.run)
    mine = {kind: recording.of_device(window.table(kind), *mine_are) for kind in ("allocation", "owner")}
    return replace(window, tables={**window.tables, **mine})


def has_events(window: Window) -> bool:
    """Return whether a window has any allocation or free."""
    return bool((window.table("allocation")["kind"] != AllocationKind.EXISTING).any())


def windows_with_events(recording: Recording) -> list[Window]:
    """Return the memory windows with any event of the run's devices, and of these devices alone."""
    windows = [of_device(recording, window) for window in recording.named(MEMORY)]
    return [window for window in windows if has_events(window)]


def left_out(recording: Recording) -> str | None:
    """Return a sentence about other devices' events in the memory windows, or None if there were none."""
    counts: Counter[str] = Counter()
    for window in recording.named(MEMORY):
        rows = window.table("allocation")
        indices, numbers = np.unique(rows["device"][rows["kind"] != AllocationKind.EXISTING], return_counts=True)
        for index, number in zip(indices.tolist(), numbers.tolist(), strict=True):
            counts[recording.strings[index]] += number
    for device in devices(recording.run):
        counts.pop(device, None)
    listed = ", ".join(f"{count} events of {device or 'an unnamed device'}" for device, count in sorted(counts.items()))
    mine = devices(recording.run)
    shown = f"only one device is reported, {mine[0]}" if len(mine) == 1 else f"reported are {', '.join(mine)}"
    return f"left out: {listed}; {shown}" if listed else None


def account(recording: Recording, window: Window) -> Account:
    """Return the account of a memory window of one device."""
    blocks, levels = lifetimes(window.table("allocation"))
    tree = SpanTree(window.table("span"))
    marks = np.sort(window.table("step")["last_sequence"])
    owners, own = window.table("owner"), turns(tree, marks)
    named = with_earlier_batches(owned(blocks, owners), blocks, owners, tree)
    unexplained = _unexplained(levels, recording)
    scratch = _scratch(unexplained, window.table("allocation"), blocks, tree) * (recording.run.threads != 1)
    return Account(
        window=window,
        strings=recording.strings,
        blocks=blocks,
        levels=levels,
        owned=named,
        tree=tree,
        roles=classify(blocks, named, tree, marks, own),
        scratch_bytes=scratch,
        unknown_bytes=narrowed(unexplained - scratch),
        counted=_counted(levels, own.settled(marks)),
        marks=own.settled(marks),
        seen_from=int(own.settled(marks)[0]) if own.ends and len(marks) else 0,
    )


def _unexplained(levels: Levels, recording: Recording) -> Ints:
    """Return the framework's total minus the known blocks, after each event.

    If the framework has counted since before the model, the result covers everything. If it began later, the result
    covers only what changed since the window began.
    """
    if levels.base_total_bytes < 0:
        return np.zeros(len(levels.sequence), np.int64)
    known = levels.known_bytes + levels.rounding_bytes
    offset = 0
    if recording.run.independent_total is not None:
        offset = levels.base_bytes + levels.base_rounding_bytes - levels.base_total_bytes
    return levels.total_bytes + offset - known


def _scratch(unexplained: Ints, allocations: Table, blocks: Blocks, tree: SpanTree) -> Ints:
    """Return the bytes that only the framework's total shows, and only during one operator.

    The memory of an operator's worker threads looks like this if a framework does not report it. A free without a
    reported allocation means that a report was lost instead. An operator with such a free claims nothing.
    """
    if not (unexplained > 0).any():
        return np.zeros(len(unexplained), np.int64)
    rows = in_order(allocations)
    operator = tree.outermost(tree.index(allocations["span"][rows]), SpanKind.OPERATOR)
    begins = np.flatnonzero(np.diff(operator, prepend=np.int32(-2)))
    ends = np.append(begins[1:], len(rows))
    lost = _lost_frees(allocations, blocks)[rows]
    sure = (operator[begins] >= 0) & (begins > 0) & (ends < len(rows)) & ~np.logical_or.reduceat(lost, begins)
    around = np.maximum(unexplained[begins - 1], unexplained[ends % len(rows)])
    level = np.where(sure, np.maximum(around, 0), NEVER)
    claimed = np.repeat(level, ends - begins)
    scratch: Ints = np.maximum(unexplained, claimed) - claimed  # NEVER is the largest integer
    return narrowed(scratch)


def _lost_frees(allocations: Table, blocks: Blocks) -> Bools:
    """Return which rows are frees that end no block."""
    freed = np.flatnonzero(allocations["kind"] == AllocationKind.FREED)
    known, ended = np.sort(blocks.end), allocations["sequence"][freed]
    place = np.minimum(np.searchsorted(known, ended), len(known) - 1)
    lost = np.zeros(len(allocations), bool)
    lost[freed] = known[place] != ended if len(known) else True
    return lost


def _counted(levels: Levels, marks: Ints) -> Bools:
    """Return the events after a window's first step (discarded as warm-up), or all if no later step has any."""
    everything = np.ones(len(levels.sequence), bool)
    if len(marks) < 2:
        return everything
    later: Bools = (levels.sequence > marks[0]) & (levels.sequence < marks[-1])
    return later if later.any() else everything
