"""Replay torch's accounting of memory, block by block."""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from tbdprof.facts.keys import RemarkOn
from tbdprof.facts.records import AllocationKind, Role, Strings
from tbdprof.facts.rows import AllocationRow
from tbdprof.hooks import disagreements, that_add_up
from tbdprof.hooks.on_torch.memory.cuda_allocator import is_whole
from tbdprof.hooks.on_torch.session.events import Existing, MemoryEvent, Owned, SeenTensor

_SHARED = (
    "up to {} bytes at once were shared with other processes, outside of data loaders: not counted, and what they hold "
    "is not known"
)

_SENT = (
    "{} frees of sent buffers, by threads that torch's profiler does not follow, were found by torch's own total: when "
    "they free varies from run to run, and so may the peak"
)

_Key = tuple[str, int]
_Seen = TypeVar("_Seen", Owned, Existing)


@dataclass(eq=False, slots=True)
class _Block:
    device: str
    address: int
    bytes: int
    was_tensor: int  # as in the table
    shape: tuple[int, ...] | None
    is_existing: bool = False
    requested_bytes: int = -1


@dataclass(frozen=True, slots=True)
class _Row:
    sequence: int
    kind: AllocationKind
    thread: int
    block: _Block
    time_ns: int
    span: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where something happened: the thread, the time, and the innermost open span of that thread."""

    thread: int
    time_ns: int
    span: int
    is_loading: bool = False  # inside a data loader that fetches a batch


class Ledger:
    """Replays allocations and frees.

    If torch's accounting of the CPU began late (`counted_from_start` is false), it lacks older blocks. It may also hold
    sizes of blocks that were freed while it was off. Then the ledger shifts torch's total so that it starts from the
    blocks known to exist. It ignores a free of a block that is not live, with its effect on the total. It subtracts a
    known block that torch never counted when the block is freed. Where torch frees an existing block with the size of
    an older one, the difference is taken off the total. So the total still shows allocations within the window that
    nothing else reports.

    Memory shared with another process, such as a data loader's worker, is not an allocation of torch's. Its events
    carry no total and are left out. `batches` gives the part that a data loader received.
    """

    def __init__(self, order: Iterator[int], cpu_bytes_at_begin: int, counted_from_start: bool) -> None:
        self._rows: list[_Row] = []
        self._order = order
        self._live: dict[tuple[str, int], _Block] = {}
        self._total: defaultdict[str, int] = defaultdict(int, cpu=cpu_bytes_at_begin)
        self._shift: defaultdict[str, int] = defaultdict(int)
        self._late = set() if counted_from_start else {"cpu"}
        if not counted_from_start:
            self._shift["cpu"] = -cpu_bytes_at_begin
        self._shared: dict[int, int] = {}
        self._batches: dict[int, int] = {}  # the part of it that data loaders received
        self._shared_peak_bytes = 0
        self._changed: dict[tuple[str, int], int] = {}  # when a block was last allocated or freed at an address
        self._live_bytes: defaultdict[str, int] = defaultdict(int)  # by device
        # Blocks that were sent, in order, with the number of rows by then: the thread that sends them may free them.
        self._lent: dict[_Key, int] = {}
        self._guessed: dict[_Key, int] = {}  # rows of frees that the total alone shows, by the block that was chosen
        self._still_in_use = self._other_size = self._unseen_frees = 0

    def exists(self, existing: Existing, time_ns: int) -> None:
        """Enter a block that existed before the window."""
        block = _Block(
            existing.device,
            existing.address,
            existing.bytes,
            1 if existing.shape is not None else -1,
            existing.shape,
            is_existing=True,
            requested_bytes=existing.requested_bytes,
        )
        if block.device in self._late:
            self._shift[block.device] += block.bytes
        self._put(block)
        self._rows.append(_Row(0, AllocationKind.EXISTING, -1, block, time_ns, -1, -1))

    def happened(self, event: MemoryEvent, place: Place) -> None:
        """Enter an allocation or a free."""
        if self._is_shared(event):
            self._share(event, place)
            return
        self._freed_unseen(event, place)
        key = (event.device, event.address)
        self._choose_again(key, is_free=event.bytes < 0)
        if event.bytes > 0:
            older = self._live.get(key)
            self._still_in_use += older is not None and not (older.is_existing and event.device in self._late)
            self.gone(*key, place)
            self._total[event.device] = event.total_bytes
            block = _Block(*key, event.bytes, int(event.was_tensor), None)
            self._put(block)
            self._enter(AllocationKind.ALLOCATED, block, place)
            return
        self._total[event.device] = event.total_bytes
        freed = self._take(key)
        if freed is None and event.device in self._late:
            self._shift[event.device] -= event.bytes
            return
        if freed is None:
            freed = _Block(*key, -event.bytes, int(event.was_tensor), None)
        if freed.is_existing and event.device in self._late:  # perhaps with the size of an older block at its address
            self._shift[event.device] -= event.bytes + freed.bytes
        else:
            self._other_size += freed.bytes != -event.bytes
        if event.was_tensor:
            freed.was_tensor = 1
        self._enter(AllocationKind.FREED, freed, place)

    def gone(self, device: str, address: int, place: Place) -> None:
        """Enter a free that torch's accounting does not report, if the block is live."""
        block = self._take((device, address))
        if block is None:
            return
        if device in self._late:
            self._shift[device] -= block.bytes
        self._enter(AllocationKind.FREED, block, place)

    def seen(self, tensor: SeenTensor) -> None:
        """Learn a live block's shape from a tensor in it."""
        block = self._live.get((tensor.device, tensor.address))
        if block is None:
            return
        block.was_tensor = 1
        if block.shape is None and is_whole(tensor.bytes, block.bytes, block.device):
            block.shape = tensor.shape

    def lent(self, owners: Sequence[Owned]) -> None:
        """Note blocks that other processes are sent: the thread that sends them may be the last to hold them."""
        for owner in owners:
            key = owner.device, owner.address
            if key in self._live:
                self._lent.setdefault(key, len(self._rows))

    def owned(self, owners: Sequence[Owned]) -> None:
        """Learn live blocks' requested sizes from owners: the requested size is the size of the storage."""
        for owner in owners:
            block = self._live.get((owner.device, owner.address))
            if block is not None and block.requested_bytes < 0 and is_whole(owner.bytes, block.bytes, block.device):
                block.requested_bytes = owner.bytes

    def batches(self) -> list[Owned]:
        """Return the live memory that data loaders received from their workers."""
        return [Owned("cpu", address, size, Role.INPUT, "batch", ()) for address, size in self._batches.items()]

    def rows(self, strings: Strings) -> list[AllocationRow]:
        """Return the rows of what was entered."""
        return [_allocation(row, strings) for row in self._rows]

    def missing(self) -> dict[str, str]:
        """Return what was left out, and where torch's events contradict each other."""
        remarks: dict[str, str] = {}
        if self._shared_peak_bytes:
            remarks[RemarkOn.SHARED_MEMORY] = _SHARED.format(self._shared_peak_bytes)
        if self._unseen_frees:
            remarks[RemarkOn.SENT_MEMORY] = _SENT.format(self._unseen_frees)
        wrong = disagreements(self._other_size, self._still_in_use)
        return remarks | ({RemarkOn.ALLOCATIONS: wrong} if wrong else {})

    def _freed_unseen(self, event: MemoryEvent, place: Place) -> None:
        """Enter frees by a thread that sends to other processes, which torch counts and does not report."""
        before_bytes = event.total_bytes - event.bytes
        excess = self._live_bytes[event.device] - before_bytes - self._shift[event.device]
        if excess <= 0 or not self._lent:
            return
        sizes = tuple((key, self._live[key].bytes) for key in self._lent if key[0] == event.device)
        for key in that_add_up(sizes, excess):
            self._total[event.device] = before_bytes
            freed = self._take(key)
            if freed is not None:
                self._unseen_frees += 1
                self._guessed[key] = len(self._rows)
                self._enter(AllocationKind.FREED, freed, Place(-1, place.time_ns, -1))

    def _choose_again(self, key: _Key, *, is_free: bool) -> None:
        """Correct which of two sent blocks of one size was freed unseen: the other is freed or allocated over now."""
        chosen, in_use = (self._guessed, self._lent) if is_free else (self._lent, self._guessed)
        if key not in chosen or (is_free and key in self._live):
            return
        pairs = ((key, each) if is_free else (each, key) for each in in_use)  # the wrong block, and the right one
        found = next((pair for pair in pairs if self._fits(*pair)), None)
        if found is None:
            return
        wrong, right = found
        place, lent = self._guessed.pop(wrong), self._lent[right]
        block, row = self._take(right), self._rows[place]
        assert block is not None
        self._rows[place] = replace(row, block=block)
        self._changed[right], self._guessed[right] = row.sequence, place
        self._put(row.block)
        self._lent[wrong] = lent

    def _fits(self, wrong: _Key, right: _Key) -> bool:
        """Return whether a live block may have been freed where another was taken for freed: it was sent before."""
        place = self._guessed[wrong]
        same = wrong[0] == right[0] and self._rows[place].block.bytes == self._live[right].bytes
        return same and self._lent[right] <= place

    def _put(self, block: _Block) -> None:
        key = block.device, block.address
        self._live[key] = block
        self._guessed.pop(key, None)
        self._live_bytes[block.device] += block.bytes

    def _take(self, key: _Key) -> _Block | None:
        block = self._live.pop(key, None)
        if block is not None:
            self._live_bytes[block.device] -= block.bytes
            self._lent.pop(key, None)
        return block

    def _is_shared(self, event: MemoryEvent) -> bool:
        """Return whether an event is of shared memory: its total is 0, which no allocation and few frees leave."""
        if event.total_bytes != 0 or event.device != "cpu":
            return False
        if event.bytes > 0 or event.address in self._shared:
            return True
        return ("cpu", event.address) not in self._live and self._total["cpu"] + event.bytes != 0

    def _share(self, event: MemoryEvent, place: Place) -> None:
        if event.bytes < 0:
            self._shared.pop(event.address, None)
            self._batches.pop(event.address, None)
            return
        self._shared[event.address] = event.bytes
        if place.is_loading:
            self._batches[event.address] = event.bytes
        others_bytes = sum(self._shared.values()) - sum(self._batches.values())
        self._shared_peak_bytes = max(self._shared_peak_bytes, others_bytes)

    def _enter(self, kind: AllocationKind, block: _Block, place: Place) -> None:
        total = self._total[block.device] + self._shift[block.device]
        sequence = next(self._order)
        self._changed[block.device, block.address] = sequence
        self._rows.append(_Row(sequence, kind, place.thread, block, place.time_ns, place.span, total))

    def appeared(self, found: Sequence[Existing], place: Place, *, is_counted: bool = False) -> None:
        """Enter blocks whose allocation nothing reported; `is_counted`: torch's total shows that it counted them."""
        for each in found:
            is_in_total = is_counted or each.device not in self._late
            if (each.device, each.address) not in self._live and is_in_total:
                block = _Block(
                    each.device,
                    each.address,
                    each.bytes,
                    1 if each.shape is not None else -1,
                    each.shape,
                    requested_bytes=each.requested_bytes,
                )
                self._put(block)
                # Torch counted it, perhaps after the last event that told its total.
                known_bytes = self._live_bytes[each.device] - self._shift[each.device]
                self._total[each.device] = max(self._total[each.device], known_bytes)
                self._enter(AllocationKind.ALLOCATED, block, place)

    def stayed(self, seen: Sequence[_Seen], since: int) -> list[_Seen]:
        """Return those of `seen` whose address has had no allocation or free since a sequence number."""
        return [each for each in seen if self._changed.get((each.device, each.address), 0) <= since]


def _allocation(row: _Row, strings: Strings) -> AllocationRow:
    block = row.block
    return AllocationRow(
        sequence=row.sequence,
        kind=row.kind,
        device=strings.add(block.device),
        thread=row.thread,
        address=block.address,
        # On a GPU torch reports the rounded block.
        requested_bytes=block.bytes if block.device == "cpu" else block.requested_bytes,
        allocated_bytes=block.bytes,
        time_ns=row.time_ns,
        span=row.span,
        was_tensor=block.was_tensor,
        shape=-1 if block.shape is None else strings.add(json.dumps(block.shape)),
        total_bytes=row.total_bytes,
    )
