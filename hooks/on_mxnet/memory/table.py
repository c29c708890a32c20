"""The tables of a memory window: phases as spans, allocations, and owners."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tbdprof.facts.records import AllocationKind, Operation, Phase, SpanKind, Strings, Tables, table
from tbdprof.hooks.on_mxnet.memory.blocks import Block, Event
from tbdprof.hooks.on_mxnet.session import layout
from tbdprof.hooks.on_mxnet.watch import phases
from tbdprof.hooks.on_mxnet.watch.owners import Owned
from tbdprof.hooks.on_mxnet.watch.phases import Interval

PLANNER = "CachedOp"
_BEFORE = (-2, -1)  # sequence numbers of what happened before the window


@dataclass(slots=True)
class Recorded:
    """What a window recorded; `pools` holds address and sequence number (0: before the window) of planned blocks."""

    start_ns: int
    existing: Mapping[int, Block]
    tensors: frozenset[int]
    events: Sequence[Event] = ()
    intervals: Sequence[Interval] = ()
    owned: Sequence[tuple[int, Owned]] = ()
    marks: list[int] = field(default_factory=list)
    pools: set[tuple[int, int]] = field(default_factory=set)
    missing: dict[str, str] = field(default_factory=dict)


def build(recorded: Recorded, strings: Strings) -> Tables:
    """Return spans, allocations and owners."""
    planned = _planned_spans(recorded)
    return {
        "span": table("span", [*phases.rows(recorded.intervals, strings), *_planned_rows(recorded, planned, strings)]),
        "allocation": table(
            "allocation", [*_existing(recorded, planned, strings), *_events(recorded, planned, strings)]
        ),
        "owner": table("owner", _owner_rows(recorded, strings)),
    }


def _planned_spans(recorded: Recorded) -> dict[int, int]:
    """Map the span of a phase (-1: before the window) to the span of the blocks planned in it."""
    made = {sequence for _, sequence in recorded.pools}
    parents = {event.span for event in recorded.events if event.sequence in made and event.span >= 0}
    if 0 in made:
        parents.add(-1)
    return {parent: len(recorded.intervals) + number for number, parent in enumerate(sorted(parents))}


def _planned_rows(recorded: Recorded, planned: Mapping[int, int], strings: Strings) -> list[tuple[object, ...]]:
    name = strings.add(PLANNER)
    rows: list[tuple[object, ...]] = []
    for parent, span in planned.items():
        phase, thread, start_ns, end_ns = Phase.FORWARD, 0, recorded.start_ns, recorded.start_ns
        first, last = _BEFORE
        if parent >= 0:
            within = recorded.intervals[parent]
            phase, thread, start_ns, end_ns = within.phase, within.thread, within.start_ns, within.end_ns
            first, last = within.first_sequence, within.last_sequence
        operator = (SpanKind.OPERATOR, phase, Operation.PLANNED, name, thread, start_ns, end_ns, first, last)
        rows.append((span, parent, *operator, -1, -1, 0, -1))
    return rows


def _existing(recorded: Recorded, planned: Mapping[int, int], strings: Strings) -> list[tuple[object, ...]]:
    return [
        _row(
            strings,
            0,
            AllocationKind.EXISTING,
            block.device,
            -1,
            address,
            (block.size_bytes, block.allocated_bytes),
            recorded.start_ns,
            planned[-1] if (address, 0) in recorded.pools else -1,
            1 if address in recorded.tensors else -1,
            -1,
        )
        for address, block in recorded.existing.items()
    ]


def _events(recorded: Recorded, planned: Mapping[int, int], strings: Strings) -> list[tuple[object, ...]]:
    rows = []
    for event in sorted(recorded.events):
        allocated = event.kind == AllocationKind.ALLOCATED
        in_pool = allocated and (event.address, event.sequence) in recorded.pools
        rows.append(
            _row(
                strings,
                event.sequence,
                event.kind,
                event.device,
                event.thread,
                event.address,
                (event.size_bytes, event.allocated_bytes),
                event.time_ns,
                planned.get(event.span, event.span) if in_pool else event.span,
                -1,
                event.total_bytes,
            )
        )
    return rows


def _row(
    strings: Strings,
    sequence: int,
    kind: AllocationKind,
    device: int,
    thread: int,
    address: int,
    sizes: tuple[int, int],
    time_ns: int,
    span: int,
    was_tensor: int,
    total_bytes: int,
) -> tuple[object, ...]:
    text, thread = strings.add(layout.device_text(device)), layout.signed(thread)
    return sequence, kind, text, thread, address, *sizes, time_ns, span, was_tensor, -1, total_bytes


def _owner_rows(recorded: Recorded, strings: Strings) -> list[tuple[object, ...]]:
    return [
        (
            sequence,
            strings.add(layout.device_text(row.device)),
            row.address,
            row.size_bytes,
            row.role,
            strings.add(row.name),
            strings.add(row.shape),
        )
        for sequence, row in recorded.owned
    ]
