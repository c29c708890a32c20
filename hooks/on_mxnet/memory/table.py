"""The tables of a memory window: phases as spans, allocations, and owners."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tbdprof.facts.records import AllocationKind, Operation, Phase, SpanKind, Strings
from tbdprof.facts.rows import AllocationRow, OwnerRow, SpanRow, Tables, table
from tbdprof.hooks.on_mxnet.memory.blocks import Block, Event
from tbdprof.hooks.on_mxnet.session import layout
from tbdprof.hooks.on_mxnet.watch import phases
from tbdprof.hooks.on_mxnet.watch.owners import Owned
from tbdprof.hooks.on_mxnet.watch.phases import Interval

PLANNER = "CachedOp"
_BEFORE = (-2, -1)  # first and last sequence number of what happened before the window


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


def _planned_rows(recorded: Recorded, planned: Mapping[int, int], strings: Strings) -> list[SpanRow]:
    name = strings.add(PLANNER)
    start_ns = recorded.start_ns
    before = Interval(-1, -1, Phase.FORWARD, PLANNER, 0, start_ns, _BEFORE[0], start_ns, _BEFORE[1])
    rows = []
    for parent, span in planned.items():
        within = recorded.intervals[parent] if parent >= 0 else before
        operator = {"kind": SpanKind.OPERATOR, "operation": Operation.PLANNED, "name": name}
        rows.append(phases.row(within, strings)._replace(id=span, parent=parent, **operator))
    return rows


def _existing(recorded: Recorded, planned: Mapping[int, int], strings: Strings) -> list[AllocationRow]:
    return [
        AllocationRow(
            sequence=0,
            kind=AllocationKind.EXISTING,
            device=strings.add(layout.device_text(block.device)),
            thread=-1,
            address=address,
            requested_bytes=block.size_bytes,
            allocated_bytes=block.allocated_bytes,
            time_ns=recorded.start_ns,
            span=planned[-1] if (address, 0) in recorded.pools else -1,
            was_tensor=1 if address in recorded.tensors else -1,
        )
        for address, block in recorded.existing.items()
    ]


def _events(recorded: Recorded, planned: Mapping[int, int], strings: Strings) -> list[AllocationRow]:
    rows = []
    for event in sorted(recorded.events):
        allocated = event.kind == AllocationKind.ALLOCATED
        in_pool = allocated and (event.address, event.sequence) in recorded.pools
        rows.append(
            AllocationRow(
                sequence=event.sequence,
                kind=event.kind,
                device=strings.add(layout.device_text(event.device)),
                thread=layout.signed(event.thread),
                address=event.address,
                requested_bytes=event.size_bytes,
                allocated_bytes=event.allocated_bytes,
                time_ns=event.time_ns,
                span=planned.get(event.span, event.span) if in_pool else event.span,
                total_bytes=event.total_bytes,
            )
        )
    return rows


def _owner_rows(recorded: Recorded, strings: Strings) -> list[OwnerRow]:
    return [
        OwnerRow(
            sequence=sequence,
            device=strings.add(layout.device_text(row.device)),
            address=row.address,
            bytes=row.size_bytes,
            role=row.role,
            name=strings.add(row.name),
            shape=strings.add(row.shape),
        )
        for sequence, row in recorded.owned
    ]
