"""The spans of a memory window: phases, and the operators that allocated or freed memory, each with its layer.

Operators run as soon as they can, those of several phases at the same time. So each operator has a phase of its own. A
function's phase lasts from the phase's first operator to its last. An update begins once a gradient exists.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tbdprof.facts.records import Operation, Phase, SpanKind, Strings
from tbdprof.facts.rows import SpanRow
from tbdprof.hooks.nesting import within_layer
from tbdprof.hooks.on_tensorflow.memory.operator_lookup import Meanings
from tbdprof.hooks.on_tensorflow.operators.node import Node
from tbdprof.hooks.on_tensorflow.session.events import MarkEvent, MemoryEvent, OpEvent, Trace
from tbdprof.hooks.on_tensorflow.watch.phases import intervals

STRIDE = 2  # distance of two events in the order, so that one more fits between
_END, _BEGIN, _EVENT = range(3)  # the order of what happens at the same time
_WITH_PHASES = (Phase.FORWARD, Phase.BACKWARD, Phase.UPDATE)


@dataclass(eq=False, slots=True)
class _Span:
    thread: int
    start_ns: int
    end_ns: int
    op: OpEvent | None = None  # None for a phase
    phase: Phase = Phase.OUTSIDE
    parent: "_Span | None" = None
    node: Node | None = None
    is_needed: bool = False
    id: int = -1
    first: int = 0
    last: int = 0


_Point = tuple[int, int, int, "_Span | MemoryEvent | MarkEvent"]


@dataclass(slots=True)
class Spans:
    """Puts a trace in order and finds the span of each event."""

    trace: Trace
    meanings: Meanings
    strings: Strings
    end_ns: int
    order: list[tuple[int, MemoryEvent | MarkEvent]] = field(default_factory=list)
    _spans: list[_Span] = field(default_factory=list)
    _places: dict[int, _Span] = field(default_factory=dict)  # by the id() of a memory event

    def __post_init__(self) -> None:
        nested = [
            _Span(each.thread, each.start_ns, each.end_ns, phase=each.phase, is_needed=True)
            for each in intervals(self.trace.marks, self.end_ns)
        ]
        nested += [_Span(op.thread, op.start_ns, op.end_ns, op) for op in self.trace.ops if op.end_ns > op.start_ns]
        points = sorted(_points(nested, self.trace), key=lambda point: point[:3])
        self._find_places(points)
        self._spans = [span for span in nested if span.is_needed]
        for span in self._spans:
            self._understand(span)
        phases = _phases_of_functions(self._spans)
        self._spans += phases
        needed = [point for point in points if not isinstance(point[3], _Span) or point[3].is_needed]
        self._number(sorted([*needed, *_points(phases, Trace())], key=lambda point: point[:3]))

    def innermost(self, event: MemoryEvent) -> int:
        """Return the id of the innermost span around an event, or -1 if there is none."""
        span = self._places.get(id(event))
        return -1 if span is None else span.id

    def node(self, event: MemoryEvent) -> Node | None:
        """Return the node of the operator around an event, or None if there is no operator or no node is known."""
        span = self._places.get(id(event))
        return None if span is None else span.node

    def phase(self, event: MemoryEvent) -> Phase:
        """Return the phase of an event."""
        span = self._places.get(id(event))
        return Phase.OUTSIDE if span is None else span.phase

    def rows(self, address_of: Callable[[str, int], int]) -> list[SpanRow]:
        """Return the rows of the span table; `address_of` returns where a variable lay at a place in the order."""
        spans = sorted(self._spans, key=lambda span: span.id)
        return [row for span in spans for row in self._rows_of(span, address_of)]

    def _find_places(self, points: list[_Point]) -> None:
        """Find what encloses each span and each memory event."""
        open_: defaultdict[int, list[_Span]] = defaultdict(list)
        for _, kind, _, thing in points:
            if isinstance(thing, MarkEvent):
                continue
            stack = open_[thing.thread]
            if kind == _END and isinstance(thing, _Span):
                if thing in stack:
                    stack.remove(thing)
            elif isinstance(thing, _Span):
                thing.parent = stack[-1] if stack else None
                stack.append(thing)
            elif stack:
                self._places[id(thing)] = stack[-1]
                _need(stack[-1])

    def _understand(self, span: _Span) -> None:
        """Look an operator up; in eager mode its phase is that of the Python code around it."""
        if span.op is None:
            return
        span.node = self.meanings.of(span.op)
        if span.node is not None and not (span.op.is_eager and span.node.phase is not Phase.DATA):
            span.phase = span.node.phase
        else:
            span.phase = _phase_around(span)

    def _number(self, points: list[_Point]) -> None:
        """Give everything its place in the order and spans their ids; a layer's id comes before its operator's."""
        ids = 0
        for rank, (_, kind, _, thing) in enumerate(points, 1):
            sequence = rank * STRIDE
            if not isinstance(thing, _Span):
                self.order.append((sequence, thing))
            elif kind == _BEGIN:
                thing.first, thing.id = sequence, ids + 1
                ids += 2
            else:
                thing.last = sequence

    def _rows_of(self, span: _Span, address_of: Callable[[str, int], int]) -> Iterator[SpanRow]:
        text, parent = self.strings.add, -1 if span.parent is None else span.parent.id
        phase = SpanRow(
            id=span.id,
            parent=parent,
            kind=SpanKind.PHASE,
            phase=span.phase,
            operation=Operation.OTHER,
            name=text(span.phase.name.lower() if span.op is None else span.op.node),
            thread=span.thread,
            start_ns=span.start_ns,
            end_ns=span.end_ns,
            first_sequence=span.first,
            last_sequence=span.last,
        )
        if span.op is None:
            yield phase
            return
        operation = Operation.OTHER if span.node is None else span.node.operation
        operand = address_of(span.node.casts, span.first) if span.node is not None and span.node.casts else 0
        operator = phase._replace(kind=SpanKind.OPERATOR, operation=operation, operand=operand)
        if span.node is None or span.node.layer is None:
            yield operator
        else:
            yield from within_layer(operator._replace(id=span.id - 1), text(span.node.layer))


def _points(spans: list[_Span], trace: Trace) -> Iterator[_Point]:
    """Yield everything that has a time; of spans that begin together, the longest begins first and ends last."""
    for span in spans:
        length = span.end_ns - span.start_ns
        yield span.start_ns, _BEGIN, -length, span
        yield span.end_ns, _END, length, span
    for event in trace.memory:
        yield event.time_ns, _EVENT, 0, event
    for mark in trace.marks:
        yield mark.time_ns, _EVENT, 1, mark


def _need(span: _Span | None) -> None:
    while span is not None and not span.is_needed:
        span.is_needed = True
        span = span.parent


def _phase_around(span: _Span) -> Phase:
    above = span.parent
    while above is not None and above.op is not None:
        above = above.parent
    return Phase.OUTSIDE if above is None else above.phase


def _phases_of_functions(spans: list[_Span]) -> list[_Span]:
    """Return the phases of each run of a function, from a phase's first operator to its last."""
    runs: defaultdict[int, defaultdict[Phase, list[_Span]]] = defaultdict(lambda: defaultdict(list))
    for span in spans:
        if span.op is not None and span.op.step and span.phase in _WITH_PHASES:
            runs[span.op.step][span.phase].append(span)
    found = []
    for number, phases in enumerate(runs.values(), 1):
        backward = [span.end_ns for span in phases[Phase.BACKWARD]]
        earliest = {Phase.UPDATE: min(backward, default=0)}
        for phase, members in phases.items():
            inside = [span for span in members if span.start_ns >= earliest.get(phase, 0)]
            if inside:
                # On a thread of its own: such a phase encloses nothing and may overlap others.
                start_ns, end_ns = min(span.start_ns for span in inside), max(span.end_ns for span in inside)
                found.append(_Span(-number, start_ns, end_ns, phase=phase, is_needed=True))
    return found
