"""Blocks of memory with their lifetimes, from the order in which they were allocated and freed.

A block lives from its allocation to its free. Owners are joined with blocks by address *and* lifetime, because an
address is reused as soon as it is free. `sequence` is the one order of all events in a window.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tbdprof.facts.arrays import Bools, Ints, Rows, narrowed
from tbdprof.facts.records import AllocationKind
from tbdprof.facts.rows import Table

BEFORE = -1  # sequence of a block that existed when the window began
NEVER = np.iinfo(np.int64).max  # sequence of the end of a block that was still live when the window ended


@dataclass(frozen=True, slots=True)
class Blocks:
    """One entry per block, in the order of (address, start); small numbers may have a narrower type."""

    address: NDArray[np.uint64]
    start: Ints  # sequence, BEFORE for an existing block
    end: Ints  # sequence, NEVER for one that outlives the window
    size_bytes: Ints  # requested if reported, otherwise allocated
    rounding_bytes: Ints  # allocated minus requested, 0 if either is not reported
    span: Ints  # id of the span that allocated it, -1 if none
    thread: Ints  # the thread that allocated it, -1 if before the window
    free_span: Ints
    free_thread: Ints
    was_tensor: NDArray[np.int8]
    shape: Ints

    def __len__(self) -> int:
        """Return how many blocks there are."""
        return len(self.address)

    def find(self, address: NDArray[np.uint64], sequence: Ints) -> Ints:
        """Return, for each address and sequence number, the index of the block that lives there, or -1."""
        if not len(self):
            return np.full(len(address), -1, np.int64)
        known, rank = np.unique(self.address, return_inverse=True)
        wanted = np.searchsorted(known, address)
        exists = (wanted < len(known)) & (known[np.minimum(wanted, len(known) - 1)] == address)
        span = int(max(self.start.max(initial=0), sequence.max(initial=0))) + 3
        key = rank * span + self.start + 1  # grows with (address, start), the order of the blocks
        place = np.searchsorted(key, wanted * span + sequence, side="right") - 1
        place = np.where(exists & (place >= 0), place, 0)
        living = exists & (self.address[place] == address)
        living &= (self.start[place] < sequence) & (sequence < self.end[place])
        return np.where(living, place, -1)


@dataclass(frozen=True, slots=True)
class Levels:
    """The bytes live after each allocation or free: the sum of the blocks, and the framework's own total."""

    sequence: Ints
    time_ns: Ints
    known_bytes: Ints  # requested bytes of the blocks
    rounding_bytes: Ints
    total_bytes: Ints  # the framework's running total, -1 if it keeps none
    base_bytes: int  # requested bytes live before the first event
    base_rounding_bytes: int
    base_total_bytes: int  # the framework's total before the first event, -1 if not reported


def lifetimes(allocations: Table) -> tuple[Blocks, Levels]:
    """Pair the allocations and frees of one device.

    A free at an address without a known block changes nothing: its allocation was not reported. An allocation at an
    address still in use ends the earlier block there.
    """
    blocks = _blocks(allocations)
    return blocks, _levels(allocations, blocks)


def _blocks(allocations: Table) -> Blocks:
    order = np.lexsort((allocations["sequence"], allocations["address"])).astype(np.int32)
    kind, address = allocations["kind"][order], allocations["address"][order]
    begin = np.flatnonzero(kind != AllocationKind.FREED).astype(np.int32)
    same = np.zeros(len(order), bool)
    same[:-1] = address[1:] == address[:-1]
    ended = same[begin]
    after = np.where(ended, begin + 1, begin)
    freed = ended & (kind[after] == AllocationKind.FREED)
    existing, address = kind[begin] == AllocationKind.EXISTING, address[begin]
    first, last = order[begin], order[after]
    del order, kind, begin, same, after
    size, rounding = _sizes(allocations, first)
    return Blocks(
        address=address,
        start=np.where(existing, BEFORE, allocations["sequence"][first]),
        end=np.where(ended, allocations["sequence"][last], NEVER),
        size_bytes=size,
        rounding_bytes=narrowed(rounding),
        span=narrowed(allocations["span"][first]),
        thread=narrowed(allocations["thread"][first]),
        free_span=narrowed(np.where(freed, allocations["span"][last], -1)),
        free_thread=narrowed(np.where(freed, allocations["thread"][last], -1)),
        was_tensor=allocations["was_tensor"][first],
        shape=allocations["shape"][first],
    )


def _sizes(allocations: Table, rows: Ints) -> tuple[Ints, Ints]:
    requested, allocated = allocations["requested_bytes"][rows], allocations["allocated_bytes"][rows]
    size = np.where(requested >= 0, requested, allocated)
    return size, np.where((requested >= 0) & (allocated >= 0), allocated - requested, 0)


def in_order(allocations: Table) -> Rows:
    """Return the rows of a window's allocations and frees in order, without the blocks that existed before it."""
    rows = np.flatnonzero(allocations["kind"] != AllocationKind.EXISTING).astype(np.int32)
    sequence = allocations["sequence"][rows]
    return rows if (sequence[1:] >= sequence[:-1]).all() else rows[np.argsort(sequence, kind="stable")]


def _levels(allocations: Table, blocks: Blocks) -> Levels:
    rows = in_order(allocations)
    sequence = allocations["sequence"][rows]
    existing = blocks.start == BEFORE
    base, base_rounding = (
        int(blocks.size_bytes[existing].sum()),
        int(blocks.rounding_bytes[existing].sum()),
    )
    total, base_total = _totals(allocations, rows)
    return Levels(
        sequence=sequence,
        time_ns=allocations["time_ns"][rows],
        known_bytes=running(sequence, blocks, blocks.size_bytes),
        rounding_bytes=narrowed(running(sequence, blocks, blocks.rounding_bytes)),
        total_bytes=total,
        base_bytes=base,
        base_rounding_bytes=base_rounding,
        base_total_bytes=base_total,
    )


def _totals(allocations: Table, rows: Rows) -> tuple[Ints, int]:
    """Return the framework's total after each event and before the first, the sum over all devices; -1: not reported.

    A framework counts each device apart. On a device without events, nothing changes what was there before.
    """
    together, before = np.zeros(len(rows), np.int64), 0
    for device in np.unique(allocations["device"]):
        is_of = allocations["device"][rows] == device
        mine = np.flatnonzero(is_of)
        counted = allocations["total_bytes"][rows[mine]]
        if (counted < 0).any():
            return np.full(len(rows), -1, np.int64), -1
        existing = (allocations["device"] == device) & (allocations["kind"] == AllocationKind.EXISTING)
        there = int(allocations["allocated_bytes"][existing].sum())
        first = _base_total(allocations[rows[mine[:1]]]) if len(mine) else there
        place = np.cumsum(is_of, dtype=np.int32)
        together += np.append(first, counted)[place]
        before += first
    return together, before if len(rows) else -1


def _base_total(first: Table) -> int:
    """Return the framework's total before its first event, or -1 if not reported."""
    if not len(first) or first["total_bytes"][0] < 0:
        return -1
    size = int(first["allocated_bytes"][0])
    allocated = first["kind"][0] == AllocationKind.ALLOCATED
    return int(first["total_bytes"][0]) + (-size if allocated else size)


def running(sequence: Ints, blocks: Blocks, amount: Ints, chosen: Bools | None = None) -> Ints:
    """Return the sum of an amount over the (chosen) live blocks after each event of an ordered sequence."""
    pick = slice(None) if chosen is None else chosen
    start, end, amount = blocks.start[pick], blocks.end[pick], amount[pick]
    change = np.zeros(len(sequence), np.int64)
    later = start != BEFORE
    np.add.at(change, np.searchsorted(sequence, start[later]), amount[later])
    ended = end != NEVER
    np.subtract.at(change, np.searchsorted(sequence, end[ended]), amount[ended])
    np.cumsum(change, out=change)
    change += int(amount[~later].sum())
    return change
