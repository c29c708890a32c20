"""Put a memory window's trace into one order and write it as the tables of `tbdprof.facts.records`."""

import itertools
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tbdprof.facts.records import Role, Strings
from tbdprof.facts.rows import OwnerRow, Table, table
from tbdprof.hooks.on_torch.memory.ledger import Ledger, Place
from tbdprof.hooks.on_torch.session.events import (
    Enter,
    Event,
    Existing,
    Leave,
    Mark,
    Marked,
    MemoryEvent,
    Owned,
    Point,
    Region,
    SeenTensor,
    Trace,
)
from tbdprof.hooks.on_torch.session.spans import Spans, calling

_AT_START = -1


class _Readings:
    """Remembers where each thread began to read owners, because other threads go on meanwhile."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._begun: dict[int, int] = {}

    def sound(self, event: Marked, sequence: int) -> Mark:
        """Return a marker without the owners whose addresses may have been reused while they were read."""
        mark = event.mark
        if mark.point is Point.READING:
            self._begun[event.thread] = sequence
        if not (mark.owned or mark.found) or event.thread not in self._begun:
            return mark
        since = self._begun.pop(event.thread)
        stayed = self._ledger.stayed
        return replace(mark, owned=stayed(mark.owned, since), found=stayed(mark.found, since))


class _Exchanged:
    """Finds what is exchanged with other processes: sent buffers, gathered weights, batches of workers."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._open: defaultdict[int, list[Region]] = defaultdict(list)  # on each thread, the innermost last

    def owners(self, event: Event) -> list[Owned]:
        """Return what an event shows of it."""
        if isinstance(event, Enter):
            self._open[event.region.thread].append(event.region)
            return _sent(event.region) if event.region.is_communication else []
        if isinstance(event, Leave):
            self._open[event.region.thread].remove(event.region)
            return self._ledger.batches() if event.region.is_loading else []
        if isinstance(event, MemoryEvent) and event.bytes > 0 and self._open[event.thread]:
            around = self._open[event.thread][-1]
            return [_gathered(event, around)] if around.gathers else []
        return []

    def is_loading(self, thread: int) -> bool:
        """Return whether a data loader fetches a batch on this thread."""
        return any(region.is_loading for region in self._open[thread])


def _sent(region: Region) -> list[Owned]:
    return [
        Owned(each.device, each.address, each.bytes, Role.COMMUNICATION, region.name, each.shape)
        for each in region.tensors
    ]


def _gathered(event: MemoryEvent, region: Region) -> Owned:
    name = region.name.partition("(")[2].removesuffix(")")
    return Owned(event.device, event.address, event.bytes, Role.GATHERED, name, ())


def _owner(sequence: int, owned: Owned, strings: Strings) -> OwnerRow:
    return OwnerRow(
        sequence=sequence,
        device=strings.add(owned.device),
        address=owned.address,
        bytes=owned.bytes,
        role=owned.role,
        name=strings.add(owned.name),
        shape=strings.add(json.dumps(owned.shape)),
    )


def _counted_deaths(trace: Trace) -> set[int]:
    """Return the ids of markers of a free that torch's accounting also reports afterwards."""
    following: dict[tuple[str, int], int] = {}
    counted: set[int] = set()
    for _, event in reversed(trace.events):
        if isinstance(event, MemoryEvent):
            following[event.device, event.address] = event.bytes
        elif isinstance(event, Marked) and following.get((event.mark.device, event.mark.address), 0) < 0:
            counted.add(id(event))
    return counted


def _there(existing: Sequence[Existing], trace: Trace) -> Iterator[Existing]:
    """Yield the blocks that existed at the window's start: other threads went on while they were listed."""
    looked = next((place for place, event in enumerate(trace.events) if _is_looked(event[1])), 0)
    first: dict[tuple[str, int], int] = {}
    for _, event in trace.events[:looked]:
        if isinstance(event, MemoryEvent):
            first.setdefault((event.device, event.address), event.bytes)
    for block in existing:
        changed = first.get((block.device, block.address), -block.bytes)
        if changed == -block.bytes:
            yield block
        elif changed < 0:  # another block took its place
            yield Existing(block.device, block.address, -changed)


def _is_looked(event: Event) -> bool:
    return isinstance(event, Marked) and event.mark.point is Point.EXISTING


def build(
    trace: Trace,
    existing: Sequence[Existing],
    counted_from_start: bool,
    strings: Strings,
    left: Sequence[SeenTensor] = (),
) -> tuple[dict[str, Table], list[int], dict[str, str]]:
    """Return a memory window's tables, the sequence number at the end of each step, and what the tables lack.

    `left` are the tensors that exist at its end: perhaps no operator read them, but they are tensors all the same.
    """
    order = itertools.count(1)
    spans = Spans(strings, order, calling(trace))
    ledger = Ledger(order, trace.cpu_bytes_at_begin, counted_from_start)
    begin_ns, end_ns = (trace.events[0][0], trace.events[-1][0]) if trace.events else (0, 0)
    there = [*_there([*existing, *_unseen(existing, left, trace, counted_from_start)], trace)]
    found = _unreported(there, trace, counted_from_start=counted_from_start)
    for block in [*there, *found.get(_AT_START, ())]:
        ledger.exists(block, begin_ns)
    owners, marks = _replay(trace, found, spans, ledger, order, strings)
    spans.finish(end_ns)
    for tensor in left:
        ledger.seen(tensor)
    tables = {
        "span": table("span", spans.table_rows()),
        "allocation": table("allocation", ledger.rows(strings)),
        "owner": table("owner", owners),
    }
    return tables, marks, ledger.missing()


def _replay(
    trace: Trace,
    unreported_at: Mapping[int, Sequence[Existing]],
    spans: Spans,
    ledger: Ledger,
    order: Iterator[int],
    strings: Strings,
) -> tuple[list[OwnerRow], list[int]]:
    """Enter all events in their order; return the owners, and the sequence number at the end of each step.

    `unreported_at` has the blocks whose allocation no event reports, by the index of the event before which they are.
    """
    owners: list[OwnerRow] = []
    marks: list[int] = []
    counted, readings, exchanged = _counted_deaths(trace), _Readings(ledger), _Exchanged(ledger)
    for index, (time_ns, event) in enumerate(trace.events):
        ledger.appeared(unreported_at.get(index, ()), Place(-1, time_ns, -1), is_counted=True)
        found = exchanged.owners(event)
        if isinstance(event, Enter):
            for tensor in event.region.tensors:
                ledger.seen(tensor)
            spans.enter(event.region)
        elif isinstance(event, Leave):
            spans.leave(event.region)
        elif isinstance(event, MemoryEvent):
            inside = exchanged.is_loading(event.thread)
            ledger.happened(event, Place(event.thread, time_ns, spans.innermost(event.thread), inside))
        elif event.mark.point is not Point.GONE:
            spans.mark(event.mark, event.thread, time_ns)
            mark = readings.sound(event, next(order))
            ledger.appeared(mark.found, Place(-1, time_ns, -1))
            ledger.owned(mark.owned)
            marks += _mark(mark, next(order), owners, strings)
        elif id(event) not in counted:
            place = Place(event.thread, time_ns, spans.innermost(event.thread))
            ledger.gone(event.mark.device, event.mark.address, place)
        ledger.lent(found)
        sequence = next(order) if found else 0
        owners += [_owner(sequence, each, strings) for each in found]
    return owners, marks


def _unseen(
    existing: Sequence[Existing], left: Sequence[SeenTensor], trace: Trace, counted_from_start: bool
) -> list[Existing]:
    """Return CPU blocks that Python did not see, but that were there when they were sent: buckets of gradients."""
    room = trace.cpu_bytes_at_begin - sum(each.bytes for each in existing if each.device == "cpu")
    known = {(each.device, each.address) for each in existing} | {(each.device, each.address) for each in left}
    found: list[Existing] = []
    for _, event in trace.events:
        if isinstance(event, MemoryEvent):
            known.add((event.device, event.address))
        elif isinstance(event, Enter) and event.region.is_communication:
            for tensor in event.region.tensors:
                key = tensor.device, tensor.address
                if key not in known and tensor.device == "cpu" and (tensor.bytes <= room or not counted_from_start):
                    known.add(key)
                    room -= tensor.bytes
                    found.append(Existing(tensor.device, tensor.address, tensor.bytes, tensor.shape))
    return found


def _unreported(
    there: Sequence[Existing], trace: Trace, *, counted_from_start: bool
) -> Mapping[int, Sequence[Existing]]:
    """Return CPU blocks whose free alone is reported, by the index of the event before which torch counted them.

    A thread allocated them before it joined, or holds them at the start (`_AT_START`) where Python does not see them.
    `there` are the blocks known at the start. The excess of torch's total over the known blocks shows since when such a
    block is there: from then on to its free, the excess is at least its size. Without such an excess the block is left
    out: it is older than torch's accounting.
    """
    known = {each.address for each in there if each.device == "cpu"}
    known_bytes = sum(each.bytes for each in there if each.device == "cpu")
    total_bytes = trace.cpu_bytes_at_begin
    places, excess = [_AT_START], [total_bytes - known_bytes if counted_from_start else 0]
    after_bytes = excess[0]
    changed: dict[int, int] = {}  # by address: from which index on another block may be there
    found: defaultdict[int, list[Existing]] = defaultdict(list)
    for place, (_, event) in enumerate(trace.events):
        if not isinstance(event, MemoryEvent) or event.device != "cpu":
            continue
        if event.total_bytes == 0 and event.address not in known and total_bytes + event.bytes != 0:
            continue  # of memory that processes share: its events carry no total
        places.append(place)
        excess.append(after_bytes + event.total_bytes - event.bytes - total_bytes)
        after_bytes, total_bytes = excess[-1], event.total_bytes
        if event.bytes > 0:
            known.add(event.address)
        elif event.address in known:
            known.remove(event.address)
        elif excess[-1] >= -event.bytes:
            first = _since(excess, -event.bytes, changed.get(event.address, 0))
            excess[first:] = [each + event.bytes for each in excess[first:]]
            after_bytes = excess[-1]
            found[places[first]].append(Existing("cpu", event.address, -event.bytes))
        elif counted_from_start:
            after_bytes += event.bytes
        changed[event.address] = len(excess)
    return found


def _since(excess: Sequence[int], size: int, least: int) -> int:
    """Return from which index on, to the end, the excess is at least a size; no index below `least`."""
    first = len(excess) - 1
    while first > least and excess[first - 1] >= size:
        first -= 1
    return first


def _mark(mark: Mark, sequence: int, owners: list[OwnerRow], strings: Strings) -> list[int]:
    """Append a marker's owners; return its sequence number if it ends a step."""
    owners += [_owner(sequence, owned, strings) for owned in mark.owned]
    return [sequence] if mark.point is Point.STEP else []
