"""Read the event tree that a session of torch's profiler recorded into a `Trace`."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from torch._C._profiler import RecordScope, _ExtraFields_Allocation, _ExtraFields_TorchOp, _ProfilerEvent

from tbdprof.errors import UnavailableError
from tbdprof.hooks.on_torch.devices import device_text
from tbdprof.hooks.on_torch.session import compiled
from tbdprof.hooks.on_torch.session.arguments import metadata, shapes_of
from tbdprof.hooks.on_torch.session.backward_runs import mark_compiled_updates, mark_last_runs, mark_phases, relate
from tbdprof.hooks.on_torch.session.events import (
    Enter,
    Event,
    Leave,
    Mark,
    Marked,
    MemoryEvent,
    Point,
    Region,
    Scope,
    Trace,
    Weight,
)
from tbdprof.hooks.on_torch.session.markers import MARKER, WHOLE
from tbdprof.hooks.on_torch.session.session import TAKEN, Recorded
from tbdprof.hooks.on_torch.session.thread_order import in_order

_SCOPES = {RecordScope.BACKWARD_FUNCTION: Scope.BACKWARD, RecordScope.USER_SCOPE: Scope.USER}

# Fills in what a window needs to know of an operator besides name, place and shapes.
Describe = Callable[[Region, _ProfilerEvent, _ExtraFields_TorchOp], None]


def read(
    recorded: Recorded, marks: dict[int, Mark], describe: Describe, weights: Mapping[int, Weight] | None = None
) -> Trace:
    """Return what a session recorded; raise UnavailableError if another profiler took it over.

    `weights` are the model's by address.
    """
    reader = _Reader(recorded, marks, describe, weights or {})
    for root in recorded.result.experimental_event_tree():
        reader.read(root)
    trace = reader.trace()
    if not trace.begun:
        raise UnavailableError(TAKEN)
    return trace


class _Reader:
    """Walks the event tree; events with equal times keep the tree's order."""

    def __init__(
        self, recorded: Recorded, marks: dict[int, Mark], describe: Describe, weights: Mapping[int, Weight]
    ) -> None:
        self._offset_ns = recorded.offset_ns
        self._ended_ns = recorded.ended_ns
        self._marks = marks
        self._is_by_hand = any(mark.point is Point.BY_HAND for mark in marks.values())
        self._describe = describe
        self._weights = weights
        self._trace = Trace()
        self._regions: list[Region] = []
        self._probe: list[MemoryEvent] = []  # what the first marker allocates and frees inside it
        self._closed_ns = recorded.ended_ns  # from here on, threads leave one by one

    def read(self, root: _ProfilerEvent) -> None:
        pending: list[tuple[_ProfilerEvent | Region, Region | None]] = [(root, None)]
        while pending:
            node, parent = pending.pop()
            if isinstance(node, Region):
                self._trace.events.append((node.end_ns, Leave(node)))
                continue
            _, fields = node.typed
            inside = parent
            if isinstance(fields, _ExtraFields_TorchOp):
                if fields.name == WHOLE:
                    self._closed_ns = self._end_ns(node)
                elif fields.name.startswith(MARKER):
                    self._marked(node, fields)
                    continue
                else:
                    inside = self._entered(node, fields, parent)
                    pending.append((inside, parent))
            elif isinstance(fields, _ExtraFields_Allocation):
                self._add(node, _memory(node, fields))
            pending += [(child, inside) for child in reversed(node.children)]

    def trace(self) -> Trace:
        self._trace.events.sort(key=lambda event: event[0])
        self._trace.events = self._within_window(in_order(self._trace.events))
        regions = sorted(self._regions, key=lambda region: region.start_ns)
        relate(regions)
        compiled.describe(regions, self._weights)
        events = [event for _, event in self._trace.events]
        mark_last_runs(events)
        mark_compiled_updates(events)
        mark_phases(events)
        return self._trace

    def _within_window(self, events: list[tuple[int, Event]]) -> list[tuple[int, Event]]:
        """Leave out the probe, and what was allocated and freed before it or after the window was closed.

        Other threads go on while the probe is there: the totals of their events are given without it.
        """
        probes = {id(event) for event in self._probe}
        first = next((place for place, (_, event) in enumerate(events) if id(event) in probes), 0)
        memory = [place for place, (_, event) in enumerate(events) if isinstance(event, MemoryEvent)]
        end = next((place for place in memory if events[place][0] > self._closed_ns), len(events))
        left_out = {place for place in memory if not first <= place < end or id(events[place][1]) in probes}
        last = max((place for place in memory if id(events[place][1]) in probes), default=0)
        held = {place for place in memory if first < place < last}
        return [
            (time_ns, self._without_probe(event) if place in held else event)
            for place, (time_ns, event) in enumerate(events)
            if place not in left_out
        ]

    def _without_probe(self, event: Event) -> Event:
        if not isinstance(event, MemoryEvent) or event.device != self._probe[0].device or not event.total_bytes:
            return event  # shared memory has no total
        return replace(event, total_bytes=event.total_bytes - self._probe[0].bytes)

    def _add(self, node: _ProfilerEvent, event: Event) -> None:
        self._trace.events.append((node.start_time_ns - self._offset_ns, event))

    def _entered(self, node: _ProfilerEvent, fields: _ExtraFields_TorchOp, parent: Region | None) -> Region:
        region = Region(
            name=fields.name,
            scope=_SCOPES.get(fields.scope, Scope.FUNCTION),
            thread=node.start_tid,
            start_ns=node.start_time_ns - self._offset_ns,
            end_ns=self._end_ns(node),
            number=fields.sequence_number,
            parent=parent,
            correlation=node.correlation_id,
            shapes=[shapes_of(value) for value in fields.inputs],
        )
        if self._is_by_hand or (parent is not None and parent.is_translated):
            region.addresses = [each.storage_data_ptr or 0 for each in metadata(fields.inputs)]
        self._describe(region, node, fields)
        self._regions.append(region)
        self._add(node, Enter(region))
        return region

    def _end_ns(self, node: _ProfilerEvent) -> int:
        """Return when an operator ended; torch 2.11 gives no end to one that outlasts the session."""
        return node.end_time_ns - self._offset_ns if node.end_time_ns >= node.start_time_ns else self._ended_ns

    def _marked(self, node: _ProfilerEvent, fields: _ExtraFields_TorchOp) -> None:
        mark = self._marks.get(int(fields.name.removeprefix(MARKER)))
        if mark is None:
            return
        self._add(node, Marked(node.start_tid, mark))
        if mark.point is Point.BEGIN:
            self._trace.begun = True
            self._read_probe(node)

    def _read_probe(self, node: _ProfilerEvent) -> None:
        """Read the allocation inside the first marker: it shows torch's running CPU total before it."""
        pending = list(node.children)
        while pending:
            child = pending.pop(0)
            _, fields = child.typed
            if isinstance(fields, _ExtraFields_Allocation):
                event = _memory(child, fields)
                if not self._probe:
                    self._trace.cpu_bytes_at_begin = event.total_bytes - event.bytes
                self._probe.append(event)
                self._add(child, event)
            pending = list(child.children) + pending


def _memory(node: _ProfilerEvent, fields: _ExtraFields_Allocation) -> MemoryEvent:
    return MemoryEvent(
        device=device_text(fields.device),
        thread=node.start_tid,
        address=fields.ptr,
        bytes=fields.alloc_size,
        total_bytes=fields.total_allocated,
        was_tensor=fields.id is not None,
    )
