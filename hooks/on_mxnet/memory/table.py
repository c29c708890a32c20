"""The tables of a memory window: phases as spans, allocations, and owners."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tbdprof.facts.records import AllocationKind, Operation, Phase, SpanKind, Strings
from tbdprof.facts.rows import KINDS, AllocationRow, OwnerRow, SpanRow, Table, Tables, table
from tbdprof.hooks.on_mxnet.memory.blocks import EVENT, Block, Events
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
    events: Events = field(default_factory=lambda: np.empty(0, EVENT))
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
        "allocation": np.concatenate(
            (table("allocation", _existing(recorded, planned, strings)), _events(recorded, planned, strings))
        ),
        "owner": table("owner", _owner_rows(recorded, strings)),
    }


def _planned_spans(recorded: Recorded) -> dict[int, int]:
    """Map the span of a phase (-1: before the window) to the span of the blocks planned in it."""
    made = {sequence for _, sequence in recorded.pools}
    spans = recorded.events["span"][np.isin(recorded.events["sequence"], list(made))]
    parents = {span for span in spans.tolist() if span >= 0}
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


def _events(recorded: Recorded, planned: Mapping[int, int], strings: Strings) -> Table:
    events = np.sort(recorded.events, order="sequence")
    rows = np.zeros(len(events), KINDS["allocation"])
    for name in ("sequence", "kind", "address", "time_ns", "span", "total_bytes", "allocated_bytes"):
        rows[name] = events[name]
    rows["requested_bytes"] = events["size_bytes"]
    rows["thread"] = events["thread"].view("<i8")
    rows["was_tensor"] = rows["shape"] = -1
    for device in np.unique(events["device"]).tolist():
        rows["device"][events["device"] == device] = strings.add(layout.device_text(device))
    pooled = np.isin(events["sequence"], [sequence for _, sequence in recorded.pools])
    pooled &= events["kind"] == AllocationKind.ALLOCATED
    rows["span"][pooled] = [planned.get(span, span) for span in events["span"][pooled].tolist()]
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
