"""Where in a window's order owners stand, read while other threads train.

An update may give a variable another buffer just as it is read. So a mark is put while what was read is held: there its
block lives, and is the variable's. Where nothing comes or goes at its address until all are read it stands at the end
of the reading, as an owner does that nobody can change; else where it was held.

A weight stands at no place where one is changed, for there both copies live, and weights hold more than the parameter
list says. Its block is named by another reading, or was there for the moment of a change alone.
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
    """What lived at an address between two points of the order, and the thread it was made in."""

    start: int
    end: int
    thread: int


@dataclass(frozen=True, slots=True)
class _Reading:
    """One reading: where it began and ended, in which thread."""

    begin: int
    end: int
    thread: int


_THERE = _Block(_BEFORE, _NEVER, _NO_THREAD)  # from before the window on


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
        """Return the owners of a reading that ends at a place, each with its own; without those that none is for."""
        rows = self._reads[number]
        if all(row.mark == NO_MARK for row in rows):
            return [(sequence, row) for row in rows]
        reading = self._readings[number]
        found = [(row, self._block(row, reading)) for row in rows]
        # The states of one parameter stand together, for together they are what its optimizer's definition says.
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
        """Return the block of an owner, None where that is a copy made for the reader."""
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
        """Yield from where to where two blocks of one weight or buffer live."""
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
    """The blocks that lived at some addresses, which no two devices of a process share."""

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
        """Return the block that lived at an address at a place, None where none did; what nobody told of stayed."""
        blocks = self._blocks.get(address, [_THERE])
        place = bisect_left(blocks, sequence, key=lambda block: block.start) - 1
        return blocks[place] if place >= 0 and sequence < blocks[place].end else None


def _together(row: Owned) -> tuple[Role, str]:
    return row.role, row.name.rpartition("/")[0] if row.role == Role.OPTIMIZER_STATE else row.name


def _with_states_at(end: int, placed: list[Placed]) -> list[Placed]:
    """Leave states out where none stands at the end of the reading, for one alone would be taken for all."""
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
