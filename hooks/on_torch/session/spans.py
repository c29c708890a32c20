"""Nest torch's regions and the markers' layers and phases into one tree of spans per thread."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tbdprof.facts.records import Operation, Phase, SpanKind, Strings
from tbdprof.facts.rows import SpanRow
from tbdprof.hooks.on_torch.session.events import (
    BackwardRun,
    Mark,
    Marked,
    Point,
    Region,
    Scope,
    Trace,
)

_FORWARD = "forward"  # origin of a span that stands for a forward phase
_UPDATE = "update"  # of one for a compiled optimizer's step, or an update by hand
_EMPTY = ("aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty")
_CASTS = ("aten::to", "aten::_to_copy")
_THREAD_BITS = 40  # a thread's number stands above these bits, an operator's number below
_INSIDE_BACKWARD = (Phase.BACKWARD, Phase.RECOMPUTE)


@dataclass(frozen=True, slots=True)
class _LayerOf:
    """The layer of an operator in a compiled region, which no module's call stands for."""

    region: Region


Origin = Region | BackwardRun | _LayerOf | str


@dataclass(eq=False, slots=True)
class _Open:
    id: int
    parent: int
    kind: SpanKind
    phase: Phase
    name: str
    thread: int
    start_ns: int
    first_sequence: int
    forward: int
    origin: Origin  # for a layer, its name


class Spans:
    """Opens and closes spans in the order of events; a closed span is a `SpanRow`.

    A forward phase begins with the call of its root module. It ends at the next backward pass, the optimizer's step, or
    the end of the training step. It may begin inside a range of Python code and outlast that range. Then it is cut
    where the range ends and continues after it. A range that is open where the phase ends is cut in the same way.
    Operators are never cut.
    """

    def __init__(self, strings: Strings, order: Iterator[int], calling: Iterable[int] = ()) -> None:
        """Take the threads that call modules; all others belong to autograd."""
        self._rows: dict[int, SpanRow] = {}
        self._strings = strings
        self._order = order
        self._ids = 0
        self._stacks: defaultdict[int, list[_Open]] = defaultdict(list)
        self._forward: dict[int, str] = {}  # thread -> name of its current forward phase
        self._derived: dict[int, int] = {}  # number of a derivative -> number of its forward operator
        self._calling = set(calling)
        self._index: dict[int, int] = {}  # threads, numbered by their first numbered operator
        self._numbering: dict[int, int] = {}  # an operator's number -> the thread that last used it
        self.by_correlation: dict[int, int] = {}  # the profiler's number of a region -> id of its span

    def table_rows(self) -> list[SpanRow]:
        """Return the closed spans in the order in which they opened."""
        return [self._rows[each] for each in sorted(self._rows)]

    def innermost(self, thread: int) -> int:
        """Return the id of a thread's innermost open span, or -1 if there is none."""
        stack = self._stacks[thread]
        return stack[-1].id if stack else -1

    def enter(self, region: Region) -> None:
        """Open a region's span; if a backward phase begins with it, open that phase before it."""
        run = region.run
        if run is not None and run.first is region:
            if run.ends_forward:
                self._end_forward_before(region)
            self._push(run, region.thread, region.start_ns)
        elif region.is_update:
            self._end_forward_before(region)
        elif region.begins_update:
            self._end_forward_before(region)
            self._push(_UPDATE, region.thread, region.start_ns)
        elif region.begins_forward and self._phase_on(region.thread) is Phase.OUTSIDE:
            self._begin_forward(_FORWARD, region.thread, region.start_ns)
        if region.layer is not None:
            self._push(_LayerOf(region), region.thread, region.start_ns)
        self._push(region, region.thread, region.start_ns)

    def leave(self, region: Region) -> None:
        """Close a region's span; if a backward phase ends with it, close that phase after it."""
        self._close_through(region, region.thread, region.end_ns)
        if region.layer is not None:
            self._close_through(_LayerOf(region), region.thread, region.end_ns)
        if region.run is not None and region.run.last is region:
            self._close_through(region.run, region.thread, region.end_ns)
        elif region.ends_update:
            self._close_through(_UPDATE, region.thread, region.end_ns)

    def mark(self, mark: Mark, thread: int, time_ns: int) -> None:
        """Open or close the span that a marker stands for."""
        if mark.point is Point.FORWARD:
            self._begin_forward(mark.name, thread, time_ns)
        elif mark.point is Point.FORWARD_END and mark.ends_forward:
            self._end_forward(thread, time_ns)
        elif mark.point is Point.STEP:
            self._end_forward(thread, time_ns)  # other threads may be in the middle of their steps
        elif mark.point is Point.LAYER:
            self._push(_layer(mark.name), thread, time_ns)
        elif mark.point is Point.LAYER_END:
            self._close_through(_layer(mark.name), thread, time_ns)

    def finish(self, time_ns: int) -> None:
        """Close every span that is still open."""
        self._forward.clear()
        for stack in self._stacks.values():
            while stack:
                self._close(stack, time_ns)

    def _phase_on(self, thread: int) -> Phase:
        stack = self._stacks[thread]
        return stack[-1].phase if stack else Phase.OUTSIDE

    def _begin_forward(self, name: str, thread: int, time_ns: int) -> None:
        self._end_forward(thread, time_ns)
        self._forward[thread] = name
        self._calling.add(thread)
        self._push(_FORWARD, thread, time_ns)

    def _end_forward_before(self, region: Region) -> None:
        # Autograd's own threads run the backward pass of every other thread's forward phase.
        own = region.thread in self._forward or region.thread in self._calling
        for thread in [region.thread] if own else list(self._forward):
            self._end_forward(thread, region.start_ns)

    def _end_forward(self, thread: int, time_ns: int) -> None:
        if self._forward.pop(thread, None) is None:
            return
        stack = self._stacks[thread]
        place = next((i for i, span in enumerate(stack) if span.origin == _FORWARD), None)
        if place is None or not all(_may_be_cut(span) for span in stack[place + 1 :]):
            return
        inside = [span.origin for span in stack[place + 1 :]]
        while len(stack) > place:
            self._close(stack, time_ns)
        for origin in inside:
            self._push(origin, thread, time_ns)

    def _close_through(self, origin: Origin, thread: int, time_ns: int) -> None:
        stack = self._stacks[thread]
        if not any(span.origin == origin for span in stack):
            return
        while self._close(stack, time_ns).origin != origin:
            pass
        if thread in self._forward and not any(span.origin == _FORWARD for span in stack):
            self._push(_FORWARD, thread, time_ns)

    def _push(self, origin: Origin, thread: int, time_ns: int) -> None:
        stack = self._stacks[thread]
        around = stack[-1] if stack else None
        phase = _phase(origin, around.phase if around is not None else Phase.OUTSIDE)
        if isinstance(origin, Region) and origin.correlation:
            self.by_correlation[origin.correlation] = self._ids
        stack.append(
            _Open(
                id=self._ids,
                parent=around.id if around is not None else -1,
                kind=_kind(origin),
                phase=phase,
                name=self._name(origin, thread),
                thread=thread,
                start_ns=time_ns,
                first_sequence=next(self._order),
                forward=self._forward_number(origin, phase, around),
                origin=origin,
            )
        )
        self._ids += 1

    def _forward_number(self, origin: Origin, phase: Phase, around: _Open | None) -> int:
        number = self._number(origin) if isinstance(origin, Region) else -1
        if isinstance(origin, Region) and origin.is_numbered:
            self._derived.pop(number, None)
            if phase is Phase.BACKWARD and around is not None:
                self._derived[number] = around.forward
        number = self._derived.get(number, number)
        if number < 0 and phase is Phase.BACKWARD and around is not None:
            return around.forward
        return number

    def _number(self, region: Region) -> int:
        """Return torch's number of an operator, made unique, because each thread counts on its own."""
        if region.number < 0:
            return -1
        thread = region.thread
        if region.is_numbered:
            self._numbering[region.number] = thread
        elif thread not in self._calling:  # one of autograd's own threads
            thread = self._numbering.get(region.number, thread)
        return region.number + (self._index.setdefault(thread, len(self._index)) << _THREAD_BITS)

    def _name(self, origin: Origin, thread: int) -> str:
        if isinstance(origin, Region):
            return origin.shown_name
        if isinstance(origin, _LayerOf):
            return origin.region.layer or ""
        if isinstance(origin, BackwardRun):
            return "backward"
        return self._forward[thread] if origin == _FORWARD else origin.removeprefix(_layer(""))  # or _UPDATE

    def _close(self, stack: list[_Open], time_ns: int) -> _Open:
        span = stack.pop()
        region = span.origin if isinstance(span.origin, Region) else None
        operation = _operation(region, span.kind)
        cast = operation is Operation.CAST and region is not None and region.tensors
        self._rows[span.id] = SpanRow(
            id=span.id,
            parent=span.parent,
            kind=span.kind,
            phase=span.phase,
            operation=operation,
            name=self._strings.add(span.name),
            thread=span.thread,
            start_ns=span.start_ns,
            end_ns=time_ns,
            first_sequence=span.first_sequence,
            last_sequence=next(self._order),
            forward=span.forward,
            shapes=self._strings.add(json.dumps(region.shapes)) if region is not None else -1,
            operand=region.tensors[0].address if region is not None and cast else 0,
            work=self._strings.add(region.work) if region is not None and region.work is not None else -1,
        )
        return span


def calling(trace: Trace) -> set[int]:
    """Return the threads that call modules."""
    marked = (event for _, event in trace.events if isinstance(event, Marked))
    return {event.thread for event in marked if event.mark.point is Point.FORWARD}


def _layer(name: str) -> str:
    return f"layer {name}"


def _may_be_cut(span: _Open) -> bool:
    return not isinstance(span.origin, Region) or span.origin.is_range


def _kind(origin: Origin) -> SpanKind:
    if isinstance(origin, str):
        return SpanKind.PHASE if origin in (_FORWARD, _UPDATE) else SpanKind.LAYER
    if isinstance(origin, _LayerOf):
        return SpanKind.LAYER
    if isinstance(origin, BackwardRun) or origin.is_engine_node or origin.is_range:
        return SpanKind.PHASE
    # A region that runs whole parts of the graph inside itself (checkpointing) is a phase, not an operator.
    runs_graph = origin.holds_engine or (
        origin.scope is Scope.BACKWARD and origin.runs_again and not origin.is_compiled
    )
    return SpanKind.PHASE if runs_graph else SpanKind.OPERATOR


def _phase(origin: Origin, around: Phase) -> Phase:
    if isinstance(origin, BackwardRun):
        return Phase.BACKWARD
    if isinstance(origin, str):
        return _phase_of_call(origin, around)
    if isinstance(origin, _LayerOf):
        return around
    if origin.is_engine_node or origin.scope is Scope.BACKWARD:
        return Phase.BACKWARD
    if origin.is_update:
        return Phase.UPDATE
    if origin.is_loading:
        return Phase.DATA
    if around is Phase.BACKWARD and origin.is_numbered and origin.runs_again:
        return Phase.RECOMPUTE
    return around


def _phase_of_call(origin: str, around: Phase) -> Phase:
    if origin == _UPDATE:
        return Phase.UPDATE
    if around in _INSIDE_BACKWARD:
        return Phase.RECOMPUTE
    return Phase.FORWARD if origin == _FORWARD else around


def _operation(region: Region | None, kind: SpanKind) -> Operation:
    if region is not None and region.takes_gradients:
        return Operation.ACCUMULATE
    if region is None or kind is not SpanKind.OPERATOR:
        return Operation.OTHER
    if region.is_communication:
        return Operation.COMMUNICATION
    if region.is_compiled:
        return Operation.COMPILED
    if region.name in _CASTS:
        return Operation.CAST
    if region.name in _EMPTY:
        return Operation.BOOKKEEPING
    return region.operation
