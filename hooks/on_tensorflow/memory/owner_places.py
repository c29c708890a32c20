"""Where owners stand in a window's order if other threads train while owners are read.

An update may give a variable another buffer just as it is read. So a marker is set while the value read is held: at
that marker its block is live and belongs to the variable. If nothing is allocated or freed at its address until all
owners are read, the owner stands at the end of the reading. There an owner stands, too, that no other thread can
change. Otherwise it stands at its own marker.

A weight stands at no place where it is being changed. There both copies are live, and weights would hold more than the
parameter list says. Another reading names its block, or the block existed only during the change.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from tbdprof.facts.records import AllocationKind, Role
from tbdprof.hooks.on_tensorflow.session.events import HELD, READ, READING, MarkEvent, MemoryEvent
from tbdprof.hooks.on_tensorflow.watch.owners import NO_MARK, Owned

_BEFORE, _NEVER = -1, 1 << 62
_NO_THREAD = -1
_LISTED = (Role.WEIGHT, Role.BUFFER)

Order = Sequence[tuple[int, MemoryEvent | MarkEvent]]
Placed = tuple[int, Owned]


@dataclass(frozen=True, slots=True)
class _Block:
    """The time in which a block was live at an address, between two points of the order, and its allocating thread."""

    start: int
    end: int
    thread: int


@dataclass(frozen=True, slots=True)
class _Reading:
    """One reading: where it began and ended, and its thread."""

    begin: int
    end: int
    thread: int


_THERE = _Block(_BEFORE, _NEVER, _NO_THREAD)  # live since before the window


class Placing:
    """The places of the owners of all readings of a window."""

    def __init__(self, order: Order, reads: Sequence[Sequence[Owned]]) -> None:
        self._reads = reads
        self._held: dict[int, int] = {}
        self._readings: dict[int, _Reading] = {}
        self._changing: list[tuple[int, int]] = []
        if any(row.mark != NO_MARK for rows in reads for row in rows):
            self._find_marks(order)
            self._lives = _Lives(order, {row.address for rows in reads for row in rows})
            self._changing = _merged(self._changes())

    def of(self, number: int, sequence: int) -> list[Placed]:
        """Return the owners of a reading that ends at `sequence`, each with its place; leave out those without one."""
        rows = self._reads[number]
        if all(row.mark == NO_MARK for row in rows):
            return [(sequence, row) for row in rows]
        reading = self._readings[number]
        found = [(row, self._block(row, reading)) for row in rows]
        # The states of one parameter stand together: only together are they what the optimizer's definition says.
        moved = {_together(row) for row, block in found if block is None or block.end < reading.end}
        placed = (self._place(row, reading, has_moved=_together(row) in moved) for row, block in found if block)
        return _with_states_at(reading.end, [each for each in placed if each is not None])

    def _find_marks(self, order: Order) -> None:
        begun: dict[int, int] = {}
        for sequence, event in order:
            if not isinstance(event, MarkEvent):
                continue
            if event.name == READING:
                begun[event.thread] = sequence
            elif event.name.startswith(HELD):
                self._held[int(event.name.removeprefix(HELD))] = sequence
            elif event.name.startswith(READ):
                number = int(event.name.removeprefix(READ))
                self._readings[number] = _Reading(begun.get(event.thread, sequence), sequence, event.thread)

    def _block(self, row: Owned, reading: _Reading) -> _Block | None:
        """Return an owner's block, or None if it is a copy made for the reader."""
        block = self._lives.at(row.address, self._held.get(row.mark, reading.end))
        if block is None or row.mark == NO_MARK:
            return block
        return None if block.start > reading.begin and block.thread == reading.thread else block

    def _place(self, row: Owned, reading: _Reading, *, has_moved: bool) -> Placed | None:
        own = self._held[row.mark]
        places = (own,) if has_moved else (reading.end, own)
        return next(((at, row) for at in places if row.role not in _LISTED or not self._is_changing(at)), None)

    def _is_changing(self, sequence: int) -> bool:
        place = bisect_right(self._changing, (sequence, _NEVER)) - 1
        return place >= 0 and sequence < self._changing[place][1]

    def _changes(self) -> Iterator[tuple[int, int]]:
        """Yield the intervals in which two blocks of one weight or buffer are live."""
        blocks: defaultdict[tuple[Role, str], set[_Block]] = defaultdict(set)
        for number, reading in self._readings.items():
            for row in self._reads[number]:
                if row.role in _LISTED and (block := self._block(row, reading)) is not None:
                    blocks[row.role, row.name].add(block)
        for found in blocks.values():
            end = _BEFORE
            for earlier, later in pairwise(sorted(found, key=lambda block: block.start)):
                end = max(end, earlier.end)
                if later.start < end:
                    yield later.start, min(end, later.end)


class _Lives:
    """The blocks that were live at some addresses; no two devices of a process share an address."""

    def __init__(self, order: Order, addresses: set[int]) -> None:
        self._blocks: defaultdict[int, list[_Block]] = defaultdict(list)  # in the order of their starts
        made: dict[int, _Block] = {}
        for sequence, event in order:
            if not isinstance(event, MemoryEvent) or event.address not in addresses:
                continue
            is_made = event.kind == AllocationKind.ALLOCATED
            if event.address in made or (not is_made and event.address not in self._blocks):
                block = made.pop(event.address, _THERE)
                self._blocks[event.address].append(replace(block, end=sequence))
            if is_made:
                made[event.address] = _Block(sequence, _NEVER, event.thread)
        for address, block in made.items():
            self._blocks[address].append(block)

    def at(self, address: int, sequence: int) -> _Block | None:
        """Return the block live at an address at a place, or None; an address without events was live all the time."""
        blocks = self._blocks.get(address, [_THERE])
        place = bisect_left(blocks, sequence, key=lambda block: block.start) - 1
        return blocks[place] if place >= 0 and sequence < blocks[place].end else None


def _together(row: Owned) -> tuple[Role, str]:
    return row.role, row.name.rpartition("/")[0] if row.role == Role.OPTIMIZER_STATE else row.name


def _with_states_at(end: int, placed: list[Placed]) -> list[Placed]:
    """Leave out optimizer states unless one stands at the end of the reading: some alone would be taken for all."""
    if any(at == end and row.role == Role.OPTIMIZER_STATE for at, row in placed):
        return placed
    return [(at, row) for at, row in placed if row.role != Role.OPTIMIZER_STATE]


def _merged(intervals: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return intervals in order, those that overlap as one."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
