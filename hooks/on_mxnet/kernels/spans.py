"""The operators of a kernels window as spans: their phases, their layers, and what they compute."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import mxnet as mx
from mxnet.executor import Executor

from tbdprof.facts import work
from tbdprof.facts.keys import RemarkOn
from tbdprof.facts.records import Phase, SpanKind, Strings
from tbdprof.facts.rows import SpanRow
from tbdprof.facts.work import Work
from tbdprof.hooks.nesting import nested, within_layer
from tbdprof.hooks.on_mxnet.flops import sparse, works
from tbdprof.hooks.on_mxnet.flops.products import Computed
from tbdprof.hooks.on_mxnet.kernels import executor_graphs, gradient_sources
from tbdprof.hooks.on_mxnet.session import graphs
from tbdprof.hooks.on_mxnet.session.calls import GraphCall, Invocation, Note, Stored
from tbdprof.hooks.on_mxnet.session.engine import Push
from tbdprof.hooks.on_mxnet.session.graphs import Node
from tbdprof.hooks.on_mxnet.session.session import Ran
from tbdprof.hooks.on_mxnet.watch.layers import Layers
from tbdprof.hooks.on_mxnet.watch.phases import Interval

_UNALIGNED = "MXNet changed {} of {} graphs before it ran them: their operators have no layer"
_IN_BULK = "MXNet runs operators of static shape in bulk: they have no layer and no FLOP count"
_AMBIGUOUS = "{} of {} graph operators cannot be distinguished from fused operators: they have no layer"
_UNFOLLOWED = "{} of {} operators of the backward pass could not be followed to the layer they are of"
_UNCOUNTED = "{} of {} products could not be followed to what they multiply, and are not counted"
_SPARSE = (
    "{} of {} products take sparse data: how many of its values they multiply is not known, so they are not counted"
)


@dataclass(slots=True)
class Facts:
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
    executors: Mapping[int, Executor] = field(default_factory=dict)  # that ran, by handle
    # What the sparse arguments of each forward call of an executor store.
    stored: Mapping[int, Sequence[Mapping[str, Stored]]] = field(default_factory=dict)
    _facts: dict[int, Facts] = field(default_factory=dict)
    _without_nodes: int = 0  # operators of graphs whose nodes are not known

    def rows(self, intervals: Sequence[Interval], strings: Strings) -> list[SpanRow]:
        """Return a row for each operator; if the operator has a layer, put the row inside a row for that layer.

        What the engine does for itself is left out: it frees arrays within operators, and waits for them.
        """
        self._find_facts()

        def rows_of(ran: Ran, first: int, parent: int) -> list[SpanRow]:
            return _rows(ran, self._known(ran), first, parent, strings)

        return nested([ran for ran in self.ran if ran.name not in works.ENGINES_OWN], rows_of, len(intervals))

    def _known(self, ran: Ran) -> Facts:
        facts = self._facts.get(ran.number)
        if facts is not None:
            return facts
        self.missing[RemarkOn.KERNEL_LAYERS] = _IN_BULK
        return Facts(Phase.BACKWARD if ran.name.startswith("_backward_") else Phase.FORWARD)

    def _find_facts(self) -> None:
        self._facts = {push.number: Facts(note.phase or Phase.OUTSIDE) for push, note in _noted(self.pushes)}
        self._follow_threads()
        self._name_graphs()
        for number, node in executor_graphs.nodes(self.pushes, self.executors, self.stored).items():
            facts = self._facts[number]
            facts.layer, facts.computed, facts.source = node
        self._name_others()
        self._follow_backward()
        for facts in self._facts.values():
            if facts.work is None and facts.computed is not None:
                facts.work = works.forward(facts.computed)
        self._count_uncounted()

    def _follow_threads(self) -> None:
        """Give requests of the engine's own threads, which free arrays, the phase of what ran there before."""
        own = {push.number for push, note in _noted(self.pushes) if note.phase is None}
        last: dict[int, Phase] = {}
        for each in sorted(self.ran, key=lambda ran: ran.start_ns):
            facts = self._facts.get(each.number)
            if facts is not None and each.number in own:
                facts.phase = last.get(each.thread, Phase.OUTSIDE)
            elif facts is not None:
                last[each.thread] = facts.phase

    def _name_graphs(self) -> None:
        known, calls = graphs.Graphs(), defaultdict[int, list[tuple[Push, GraphCall]]](list)
        for push, note in _noted(self.pushes):
            if isinstance(note.asked, GraphCall) and push.name not in gradient_sources.LIBRARY:
                calls[id(note.asked)].append((push, note.asked))
        unaligned = sum(not self._name_graph(known, asked) for asked in calls.values())
        if self._without_nodes:
            self.missing[RemarkOn.KERNEL_LAYERS] = _AMBIGUOUS.format(self._without_nodes, sum(map(len, calls.values())))
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
            facts = self._facts[push.number]
            facts.layer = self.layers.of_nodes(call.block, nodes)
            facts.computed = nodes[0] if len(nodes) == 1 and nodes[0].operator == push.name else None
            self._without_nodes += not nodes
        return True

    def _name_others(self) -> None:
        for push, note in _noted(self.pushes):
            facts, asked = self._facts[push.number], note.asked
            if not isinstance(asked, Invocation):
                continue
            if asked.operator == push.name:
                facts.computed = asked
            if facts.phase is Phase.FORWARD:
                facts.layer = self.layers.of_block(note.block)

    def _follow_backward(self) -> None:
        facts = self._facts
        found = gradient_sources.sources(
            self.pushes,
            lambda push: facts[push.number].phase is Phase.BACKWARD,
            lambda push: push.name not in gradient_sources.LIBRARY and _may_have_gradient(facts[push.number]),
            lambda one, other: _same(facts[one.number], facts[other.number]),
        )
        for number, source in found.items():
            if facts[number].source < 0:
                facts[number].source = source
        for push in self.pushes:
            source = facts[push.number].source
            computed = facts[source].computed if source >= 0 else None
            if computed is not None and gradient_sources.is_named_for(push.name, computed.operator):
                facts[push.number].work = works.backward(computed, push.name)
        self._count_lost()

    def _count_lost(self) -> None:
        """Report how many gradients have no known source, among operators of which some are in a layer."""
        facts = self._facts
        inside = {push.name for push in self.pushes if facts[push.number].layer is not None}
        asked = [push for push in self.pushes if any(gradient_sources.is_gradient(push.name, name) for name in inside)]
        lost = sum(facts[push.number].source < 0 for push in asked)
        if lost:
            self.missing.setdefault(RemarkOn.KERNEL_LAYERS, _UNFOLLOWED.format(lost, len(asked)))

    def _count_uncounted(self) -> None:
        """Report how many matmuls, convolutions and recurrent layers have no known sizes."""
        products = [push.number for push in self.pushes if works.is_product(push.name)]
        lost = [number for number in products if self._facts[number].work is None]
        of_sparse = sum(self._is_of_sparse(number) for number in lost)
        counts = {_UNCOUNTED: len(lost) - of_sparse, _SPARSE: of_sparse}
        reasons = [reason.format(count, len(products)) for reason, count in counts.items() if count]
        if reasons:
            self.missing[RemarkOn.KERNEL_COUNTS] = "; ".join(reasons)

    def _is_of_sparse(self, number: int) -> bool:
        """Return whether an operator, or the one whose gradient it computes, takes sparse data."""
        facts = self._facts[number]
        computed = self._facts[facts.source].computed if facts.source >= 0 else facts.computed
        return computed is not None and sparse.is_sparse(computed)


def _noted(pushes: Iterable[Push]) -> Iterable[tuple[Push, Note]]:
    return ((push, push.note) for push in pushes if isinstance(push.note, Note))


def contradicts(push: Push, nodes: Iterable[Node], variables: Mapping[str, int]) -> bool:
    """Return whether a request does not touch the parameters of the nodes that it is matched to."""
    touched = {*push.reads, *push.writes}
    return any(variables.get(name, 0) not in touched for node in nodes for name in node.parameters)


def _may_have_gradient(facts: Facts) -> bool:
    """Return whether a backward pass may hold an operator's gradient, as far as its inputs are known."""
    if facts.phase in (Phase.BACKWARD, Phase.UPDATE):
        return False
    return facts.computed is None or any(array.wanted for array in facts.computed.inputs)


def _same(one: Facts, other: Facts) -> bool:
    """Return whether it makes no difference which of two operators is a gradient's source."""
    if one is other:
        return True
    sizes = [each.computed and (each.computed.inputs, each.computed.attributes) for each in (one, other)]
    return one.layer == other.layer and sizes[0] == sizes[1]


def _rows(ran: Ran, facts: Facts, first: int, parent: int, strings: Strings) -> list[SpanRow]:
    """Return an operator's row; if it has a layer, put the row inside a row for the layer."""
    forward = facts.source if facts.source >= 0 else ran.number if facts.phase is Phase.FORWARD else -1
    kind = works.operation(ran.name) if facts.work is None else facts.work.operation
    operator = SpanRow(
        id=first,
        parent=parent,
        kind=SpanKind.OPERATOR,
        phase=facts.phase,
        operation=kind,
        name=strings.add(ran.name),
        thread=ran.thread,
        start_ns=ran.start_ns,
        end_ns=ran.end_ns,
        forward=forward,
        shapes=-1 if facts.computed is None else strings.add(_shapes(facts.computed)),
        work=-1 if facts.work is None else strings.add(work.text(facts.work)),
    )
    return [operator] if facts.layer is None else within_layer(operator, strings.add(facts.layer))


def _shapes(computed: Computed) -> str:
    return json.dumps([list(array.shape) for array in computed.inputs])
