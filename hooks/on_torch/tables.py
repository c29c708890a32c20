"""A window's trace, put in one order and written as the tables of `tbdprof.records`."""

import itertools
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tbdprof.hooks import disagreements
from tbdprof.hooks.on_torch import activity
from tbdprof.hooks.on_torch.events import (
    Enter,
    Existing,
    Leave,
    Mark,
    Marked,
    MemoryEvent,
    Owned,
    Point,
    SeenTensor,
    Trace,
)
from tbdprof.hooks.on_torch.spans import Spans
from tbdprof.records import AllocationKind, Strings, Table, table

_ROUNDED_TO_BYTES = 512  # by CUDA's caching allocator,
_UNSPLIT_BYTES = 1 << 20  # which leaves as much, and no more, of a block that is larger
_SHARED = "up to {} bytes at once were shared with other processes (batches of data loaders' workers): not counted"


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
class _Place:
    thread: int
    time_ns: int
    span: int


class Ledger:
    """Replays allocations and frees.

    Where torch's account of the CPU began late (`counted_from_start` false) it lacks older blocks
    and may hold sizes of blocks that died while it was off. There its total is shifted to start
    from the blocks that are known to exist, a free of a block that is not live is left out with
    its effect on the total, and a known block that torch never counted is taken off when it dies.
    The total then still tells what is allocated unseen within the window.

    Memory shared with another process, as that of a data loader's workers, is no allocation of
    torch's: its events, which carry no total, are left out.
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
        self._shared_peak_bytes = 0
        self._still_in_use = self._other_size = 0

    def exists(self, existing: Existing, time_ns: int) -> None:
        """Enter a block that was there before the window."""
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
        self._live[block.device, block.address] = block
        self._rows.append(_Row(0, AllocationKind.EXISTING, -1, block, time_ns, -1, -1))

    def happened(self, event: MemoryEvent, place: _Place) -> None:
        """Enter an allocation or a free."""
        if self._is_shared(event):
            self._share(event)
            return
        key = (event.device, event.address)
        if event.bytes > 0:
            older = self._live.get(key)
            self._still_in_use += older is not None and not (older.is_existing and event.device in self._late)
            self.gone(*key, place)
            self._total[event.device] = event.total_bytes
            block = _Block(*key, event.bytes, int(event.was_tensor), None)
            self._live[key] = block
            self._enter(AllocationKind.ALLOCATED, block, place)
            return
        self._total[event.device] = event.total_bytes
        freed = self._live.pop(key, None)
        if freed is None and event.device in self._late:
            self._shift[event.device] -= event.bytes
            return
        if freed is None:
            freed = _Block(*key, -event.bytes, int(event.was_tensor), None)
        self._other_size += freed.bytes != -event.bytes
        if event.was_tensor:
            freed.was_tensor = 1
        self._enter(AllocationKind.FREED, freed, place)

    def gone(self, device: str, address: int, place: _Place) -> None:
        """Enter the free of a block that torch's account does not tell, where the block is live."""
        block = self._live.pop((device, address), None)
        if block is None:
            return
        if device in self._late:
            self._shift[device] -= block.bytes
        self._enter(AllocationKind.FREED, block, place)

    def seen(self, tensor: SeenTensor) -> None:
        """Learn from a tensor what a live block holds."""
        block = self._live.get((tensor.device, tensor.address))
        if block is None:
            return
        block.was_tensor = 1
        if block.shape is None and _is_whole(tensor.bytes, block):
            block.shape = tensor.shape

    def owned(self, owners: Sequence[Owned]) -> None:
        """Learn from owners what live blocks were asked for with: a storage's bytes are that."""
        for owner in owners:
            block = self._live.get((owner.device, owner.address))
            if block is not None and block.requested_bytes < 0 and _is_whole(owner.bytes, block):
                block.requested_bytes = owner.bytes

    def table(self, strings: Strings) -> Table:
        """Return what was entered."""
        return table("allocation", [_allocation(row, strings) for row in self._rows])

    def missing(self) -> dict[str, str]:
        """Return what was left out, and where torch contradicted itself."""
        told = {}
        if self._shared_peak_bytes:
            told["shared_memory"] = _SHARED.format(self._shared_peak_bytes)
        wrong = disagreements(self._other_size, self._still_in_use)
        return told | ({"allocations": wrong} if wrong else {})

    def _is_shared(self, event: MemoryEvent) -> bool:
        """Return whether an event is a mapping's: no total can be 0 after an allocation, and few after a free."""
        if event.total_bytes != 0 or event.device != "cpu":
            return False
        if event.bytes > 0 or event.address in self._shared:
            return True
        return ("cpu", event.address) not in self._live and self._total["cpu"] + event.bytes != 0

    def _share(self, event: MemoryEvent) -> None:
        if event.bytes < 0:
            self._shared.pop(event.address, None)
            return
        self._shared[event.address] = event.bytes
        self._shared_peak_bytes = max(self._shared_peak_bytes, sum(self._shared.values()))

    def _enter(self, kind: AllocationKind, block: _Block, place: _Place) -> None:
        total = self._total[block.device] + self._shift[block.device]
        sequence = next(self._order)
        self._rows.append(_Row(sequence, kind, place.thread, block, place.time_ns, place.span, total))


def _is_whole(asked_bytes: int, block: _Block) -> bool:
    """Return whether a block may have been asked for with so many bytes, by what the allocator adds to them."""
    spare = block.bytes - asked_bytes
    if block.device == "cpu":
        return spare == 0
    unsplit = _UNSPLIT_BYTES if block.bytes > _UNSPLIT_BYTES else 0
    return 0 <= spare < unsplit + _ROUNDED_TO_BYTES


def _allocation(row: _Row, strings: Strings) -> tuple[object, ...]:
    block = row.block
    return (
        row.sequence,
        row.kind,
        strings.add(block.device),
        row.thread,
        block.address,
        block.bytes if block.device == "cpu" else block.requested_bytes,  # elsewhere torch tells the rounded block
        block.bytes,
        row.time_ns,
        row.span,
        block.was_tensor,
        -1 if block.shape is None else strings.add(json.dumps(block.shape)),
        row.total_bytes,
    )


def _owner(sequence: int, owned: Owned, strings: Strings) -> tuple[object, ...]:
    return (
        sequence,
        strings.add(owned.device),
        owned.address,
        owned.bytes,
        owned.role,
        strings.add(owned.name),
        strings.add(json.dumps(owned.shape)),
    )


def _counted_frees(trace: Trace) -> set[tuple[str, int]]:
    """Return the places whose first event is a free: torch's account knows their blocks."""
    first: dict[tuple[str, int], int] = {}
    for _, event in trace.events:
        if isinstance(event, MemoryEvent):
            first.setdefault((event.device, event.address), event.bytes)
    return {key for key, size in first.items() if size < 0}


def build(
    trace: Trace,
    existing: Sequence[Existing],
    counted_from_start: bool,
    strings: Strings,
    left: Sequence[SeenTensor] = (),
) -> tuple[dict[str, Table], list[int], dict[str, str]]:
    """Return the tables of a window, the sequence at each of its steps' ends, and what is not in them.

    `left` are the tensors there at its end: no operator may have read them, and they are tensors all the same.
    """
    order = itertools.count(1)
    spans = Spans(strings, order)
    ledger = Ledger(order, trace.cpu_bytes_at_begin, counted_from_start)
    owners: list[tuple[object, ...]] = []
    marks: list[int] = []
    begin_ns, end_ns = (trace.events[0][0], trace.events[-1][0]) if trace.events else (0, 0)
    for block in existing:
        ledger.exists(block, begin_ns)
    counted = _counted_frees(trace)
    for time_ns, event in trace.events:
        if isinstance(event, Enter):
            for tensor in event.region.tensors:
                ledger.seen(tensor)
            spans.enter(event.region)
        elif isinstance(event, Leave):
            spans.leave(event.region)
        elif isinstance(event, MemoryEvent):
            ledger.happened(event, _Place(event.thread, time_ns, spans.innermost(event.thread)))
        elif event.mark.point is not Point.GONE:
            spans.mark(event.mark, event.thread, time_ns)
            ledger.owned(event.mark.owned)
            marks += _mark(event.mark, next(order), owners, strings)
        elif (event.mark.device, event.mark.address) not in counted:
            place = _Place(event.thread, time_ns, spans.innermost(event.thread))
            ledger.gone(event.mark.device, event.mark.address, place)
    spans.finish(end_ns)
    for tensor in left:
        ledger.seen(tensor)
    tables = {
        "span": table("span", spans.table_rows()),
        "allocation": ledger.table(strings),
        "owner": table("owner", owners),
    }
    kernels, wrong = _of_gpu(trace, spans, end_ns, strings)
    return tables | kernels, marks, ledger.missing() | wrong


def _of_gpu(trace: Trace, spans: Spans, end_ns: int, strings: Strings) -> tuple[dict[str, Table], dict[str, str]]:
    """Return the tables of what a GPU did from the first marker on, and what is not in them."""
    if trace.activity is None:
        return {}, {}
    begin_ns = next((time_ns for time_ns, event in trace.events if isinstance(event, Marked)), 0)
    return activity.tables(trace.activity, spans.by_correlation, begin_ns, end_ns, strings)


def _mark(mark: Mark, sequence: int, owners: list[tuple[object, ...]], strings: Strings) -> list[int]:
    """Append a marker's owners; return its sequence where it ends a step."""
    owners += [_owner(sequence, owned, strings) for owned in mark.owned]
    return [sequence] if mark.point is Point.STEP else []
