"""Write a kernels window's trace as the tables of `tbdprof.facts.records`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tbdprof.facts.keys import RemarkOn
from tbdprof.facts.records import Operation, Phase, Strings
from tbdprof.facts.rows import Table
from tbdprof.facts.work import PRODUCTS
from tbdprof.hooks.on_tensorflow.flops import counted_eager
from tbdprof.hooks.on_tensorflow.flops.counted_graphs import CountedGraphs
from tbdprof.hooks.on_tensorflow.flops.run_shapes import RunShapes
from tbdprof.hooks.on_tensorflow.flops.sizes import Given
from tbdprof.hooks.on_tensorflow.kernels import gpu_activity, xla
from tbdprof.hooks.on_tensorflow.kernels.spans import Ran, spans
from tbdprof.hooks.on_tensorflow.operators import eager
from tbdprof.hooks.on_tensorflow.operators.graphs import Graphs
from tbdprof.hooks.on_tensorflow.operators.kinds import operation
from tbdprof.hooks.on_tensorflow.operators.node import UNKNOWN, Node
from tbdprof.hooks.on_tensorflow.operators.runs import LOADING, Runs
from tbdprof.hooks.on_tensorflow.session.events import ERRORS, OpEvent, Trace

BEGIN = "kernels"
_CHEAP = "the trace level of this TensorFlow build cannot be set: operators that TensorFlow considers cheap are missing"
_UNCOUNTED = "{} of {} products could not be followed to what they multiply, and are not counted"
_UNKNOWN = "{} of {} operators ran in functions that are not known: they are in no layer and no phase"
_ELSEWHERE = "{} of {} operators ran in eager mode on other threads: they are in no layer and no phase"


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a window recorded."""

    trace: Trace
    asked: Sequence[eager.Asked]  # since the marker `BEGIN`, on its thread
    calls: Mapping[str, Sequence[Given]]  # argument shapes of Python's calls, by function and in order


def build(recorded: Recorded, graphs: Graphs, strings: Strings) -> tuple[dict[str, Table], dict[str, str]]:
    """Return a window's tables, and what they lack."""
    trace = recorded.trace
    trace.hlo_ops += gpu_activity.instructions(trace)
    operators = _Operators(recorded, graphs)
    ran = [*operators.ran(), *xla.instructions(trace, operators.graphs, recorded.asked)]
    missing = operators.missing | _missing(trace, ran)
    rows = spans(ran, strings)
    of_gpus = gpu_activity.build(trace, rows, strings)
    return {"span": rows, **of_gpus.tables}, missing | of_gpus.missing


class _Operators:
    """The operators that ran outside regions compiled by XLA, each with its purpose and its FLOP count."""

    def __init__(self, recorded: Recorded, graphs: Graphs) -> None:
        trace = self._trace = recorded.trace
        self.missing: dict[str, str] = {}
        self.graphs = CountedGraphs(graphs)
        self._runs = Runs(trace, graphs)
        self._shapes = RunShapes(trace, graphs, self._runs, recorded.calls, self.graphs.sized)
        self._asked = eager.of_events(trace, BEGIN, recorded.asked, self.missing, counted_eager.node_of)

    def ran(self) -> list[Ran]:
        """Return these operators; this also fills `missing`."""
        pairs = [(op, self._node(op)) for op in self._trace.ops]
        elsewhere = sum(op.is_eager and id(op) not in self._asked for op in self._trace.ops)
        if elsewhere:
            self.missing.setdefault(RemarkOn.KERNEL_LAYERS, _ELSEWHERE.format(elsewhere, len(pairs)))
        unknown = sum(node is None for _, node in pairs)
        if unknown:
            self.missing.setdefault(RemarkOn.KERNEL_LAYERS, _UNKNOWN.format(unknown, len(pairs)))
        return [Ran(op.op, op.thread, op.start_ns, op.end_ns, node or UNKNOWN) for op, node in pairs]

    def _node(self, op: OpEvent) -> Node | None:
        if op.op in LOADING:
            return Node(Phase.DATA, None, Operation.OTHER)
        if op.is_eager:
            return self._asked.get(id(op)) or eager.by_type(op)
        function = self._runs.function(op)
        if self._runs.is_loading(op):
            return Node(Phase.DATA, None, operation(op.op))
        return self.graphs.find(op.node, op.op, function, self._shapes.given(op))


def _missing(trace: Trace, ran: Sequence[Ran]) -> dict[str, str]:
    missing: dict[str, str] = {}
    if trace.leaves_out:
        missing[RemarkOn.CHEAP_KERNELS] = _CHEAP
    if trace.errors:
        missing[RemarkOn.TRACE] = ERRORS.format(len(trace.errors))
    products = [each for each in ran if each.node.operation in PRODUCTS]
    lost = sum(each.node.work is None for each in products)
    if lost:
        missing[RemarkOn.KERNEL_COUNTS] = _UNCOUNTED.format(lost, len(products))
    return missing
