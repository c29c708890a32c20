"""The operators of a kernels window as spans: their phases, their layers, and what they compute."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import mxnet as mx

from tbdprof.facts import work
from tbdprof.facts.keys import RemarkOn
from tbdprof.facts.records import Phase, SpanKind, Strings
from tbdprof.facts.work import Work
from tbdprof.hooks.on_mxnet.flops import works
from tbdprof.hooks.on_mxnet.flops.products import Computed
from tbdprof.hooks.on_mxnet.kernels import gradient_sources
from tbdprof.hooks.on_mxnet.session import graphs
from tbdprof.hooks.on_mxnet.session.calls import GraphCall, Note
from tbdprof.hooks.on_mxnet.session.engine import Push
from tbdprof.hooks.on_mxnet.session.graphs import Node
from tbdprof.hooks.on_mxnet.session.session import Ran
from tbdprof.hooks.on_mxnet.watch.layers import Layers
from tbdprof.hooks.on_mxnet.watch.phases import Interval

_UNALIGNED = "MXNet changed {} of {} graphs before it ran them: their operators have no layer"
_IN_BULK = "MXNet runs operators of static shape in bulk: they have no layer and no FLOP count"
_AMBIGUOUS = "{} of {} graph operators cannot be told apart from fused operators: they have no layer"
_UNFOLLOWED = "{} of {} operators of the backward pass could not be followed to the layer they are of"
_UNCOUNTED = "{} of {} products could not be followed to what they multiply, and are not counted"

Row = tuple[object, ...]


@dataclass(slots=True)
class Told:
    """What is known of an operator; `source` is the number of its forward operator if it is a gradient."""

    phase: Phase
    layer: str | None = None
    computed: Computed | None = None
    source: int = -1
    work: Work | None = None


@dataclass(slots=True)
class Operators:
    """The operators of a window as rows of spans; `missing` says what could not be found out."""

    pushes: Sequence[Push]
    ran: Sequence[Ran]
    layers: Layers
    missing: dict[str, str] = field(default_factory=dict)
    _told: dict[int, Told] = field(default_factory=dict)
    _untold: int = 0  # operators of graphs whose nodes are not known

    def rows(self, intervals: Sequence[Interval], strings: Strings) -> list[Row]:
        """Return a row for each operator; if the operator has a layer, put the row inside a row for that layer.

        MXNet frees arrays within operators, by operators of its own.
        """
        self._tell()
        rows, first = list[Row](), len(intervals)
        open_on: dict[int, list[tuple[int, int]]] = defaultdict(list)  # by thread: end and row of each open operator
        for each in sorted(self.ran, key=lambda ran: (ran.start_ns, -ran.end_ns)):
            around = open_on[each.thread]
            while around and (each.start_ns >= around[-1][0] or each.end_ns > around[-1][0]):
                around.pop()
            parent = around[-1][1] if around else -1
            rows += _rows(each, self._known(each), first + len(rows), parent, strings)
            around.append((each.end_ns, first + len(rows) - 1))
        return rows

    def _known(self, ran: Ran) -> Told:
        told = self._told.get(ran.number)
        if told is not None:
            return told
        self.missing[RemarkOn.KERNEL_LAYERS] = _IN_BULK
        return Told(Phase.BACKWARD if ran.name.startswith("_backward_") else Phase.FORWARD)

    def _tell(self) -> None:
        self._told = {push.number: Told(note.phase or Phase.OUTSIDE) for push, note in _noted(self.pushes)}
        self._follow_threads()
        self._name_graphs()
        self._name_others()
        self._follow_backward()
        for told in self._told.values():
            if told.work is None and told.computed is not None:
                told.work = works.forward(told.computed)
        self._count_uncounted()

    def _follow_threads(self) -> None:
        """Give requests of the engine's own threads, which free arrays, the phase of what ran there before."""
        own = {push.number for push, note in _noted(self.pushes) if note.phase is None}
        last: dict[int, Phase] = {}
        for each in sorted(self.ran, key=lambda ran: ran.start_ns):
            told = self._told.get(each.number)
            if told is not None and each.number in own:
                told.phase = last.get(each.thread, Phase.OUTSIDE)
            elif told is not None:
                last[each.thread] = told.phase

    def _name_graphs(self) -> None:
        known, calls = graphs.Graphs(), defaultdict[int, list[tuple[Push, GraphCall]]](list)
        for push, note in _noted(self.pushes):
            if isinstance(note.asked, GraphCall) and push.name not in gradient_sources.LIBRARY:
                calls[id(note.asked)].append((push, note.asked))
        unaligned = sum(not self._name_graph(known, asked) for asked in calls.values())
        if self._untold:
            self.missing[RemarkOn.KERNEL_LAYERS] = _AMBIGUOUS.format(self._untold, sum(map(len, calls.values())))
        if unaligned:
            self.missing[RemarkOn.KERNEL_LAYERS] = _UNALIGNED.format(unaligned, len(calls))

    def _name_graph(self, known: graphs.Graphs, asked: Sequence[tuple[Push, GraphCall]]) -> bool:
        call = asked[0][1]
        try:
            placed = graphs.place([push.name for push, _ in asked], known.nodes(call))
        except mx.base.MXNetError:  # its shapes do not follow from those of its arguments
            return False
        if placed is None:
            return False
        variables = dict(zip(call.symbol.list_inputs(), call.variables, strict=True))
        if any(contradicts(push, nodes, variables) for (push, _), nodes in zip(asked, placed, strict=True)):
            return False
        for (push, _), nodes in zip(asked, placed, strict=True):
            told = self._told[push.number]
            told.layer = self.layers.of_nodes(call.block, nodes)
            told.computed = nodes[0] if len(nodes) == 1 and nodes[0].operator == push.name else None
            self._untold += not nodes
        return True

    def _name_others(self) -> None:
        for push, note in _noted(self.pushes):
            told, asked = self._told[push.number], note.asked
            if isinstance(asked, GraphCall) or asked is None:
                continue
            if asked.operator == push.name:
                told.computed = asked
            if told.phase is Phase.FORWARD:
                told.layer = self.layers.of_block(note.block)

    def _follow_backward(self) -> None:
        told = self._told
        found = gradient_sources.sources(
            self.pushes,
            lambda push: told[push.number].phase is Phase.BACKWARD,
            lambda push: push.name not in gradient_sources.LIBRARY and _may_have_gradient(told[push.number]),
            lambda one, other: _same(told[one.number], told[other.number]),
        )
        for number, source in found.items():
            told[number].source = source
        for push in self.pushes:
            source = told[push.number].source
            computed = told[source].computed if source >= 0 else None
            if computed is not None and gradient_sources.is_named_for(push.name, computed.operator):
                told[push.number].work = works.backward(computed, push.name)
        self._count_lost()

    def _count_lost(self) -> None:
        """Report how many gradients have no known source, among operators of which some are in a layer."""
        told = self._told
        inside = {push.name for push in self.pushes if told[push.number].layer is not None}
        asked = [push for push in self.pushes if any(gradient_sources.is_gradient(push.name, name) for name in inside)]
        lost = sum(told[push.number].source < 0 for push in asked)
        if lost:
            self.missing.setdefault(RemarkOn.KERNEL_LAYERS, _UNFOLLOWED.format(lost, len(asked)))

    def _count_uncounted(self) -> None:
        """Report how many matmuls, convolutions and recurrent layers have no known sizes."""
        products = [push.number for push in self.pushes if works.is_product(push.name)]
        lost = sum(self._told[number].work is None for number in products)
        if lost:
            self.missing[RemarkOn.KERNEL_COUNTS] = _UNCOUNTED.format(lost, len(products))


def _noted(pushes: Iterable[Push]) -> Iterable[tuple[Push, Note]]:
    return ((push, push.note) for push in pushes if isinstance(push.note, Note))


def contradicts(push: Push, nodes: Iterable[Node], variables: Mapping[str, int]) -> bool:
    """Return whether a request does not touch the parameters of the nodes that it is matched to."""
    touched = {*push.reads, *push.writes}
    return any(variables.get(name, 0) not in touched for node in nodes for name in node.parameters)


def _may_have_gradient(told: Told) -> bool:
    """Return whether a backward pass may hold an operator's gradient, as far as its inputs are known."""
    if told.phase in (Phase.BACKWARD, Phase.UPDATE):
        return False
    return told.computed is None or any(array.wanted for array in told.computed.inputs)


def _same(one: Told, other: Told) -> bool:
    """Return whether it makes no difference which of two operators is a gradient's source."""
    if one is other:
        return True
    sizes = [each.computed and (each.computed.inputs, each.computed.attributes) for each in (one, other)]
    return one.layer == other.layer and sizes[0] == sizes[1]


def _rows(ran: Ran, told: Told, first: int, parent: int, strings: Strings) -> list[Row]:
    """Return an operator's row; if it has a layer, put the row inside a row for the layer."""
    times = (ran.thread, ran.start_ns, ran.end_ns, -1, -1)
    forward = told.source if told.source >= 0 else ran.number if told.phase is Phase.FORWARD else -1
    kind = works.operation(ran.name) if told.work is None else told.work.operation
    shapes = -1 if told.computed is None else strings.add(_shapes(told.computed))
    text = -1 if told.work is None else strings.add(work.text(told.work))
    operator = (SpanKind.OPERATOR, told.phase, kind, strings.add(ran.name), *times, forward, shapes, 0, text)
    if told.layer is None:
        return [(first, parent, *operator)]
    name = strings.add(told.layer)
    layer = (first, parent, SpanKind.LAYER, told.phase, 0, name, *times, -1, -1, 0, -1)
    return [layer, (first + 1, first, *operator)]


def _shapes(computed: Computed) -> str:
    return json.dumps([list(array.shape) for array in computed.inputs])
