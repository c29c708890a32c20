"""A window of kernels: every operator that ran, what it is for and what it computes; no owner is read."""

from contextlib import ExitStack

from tbdprof.errors import UnavailableError
from tbdprof.facts.records import Operation, Phase, Strings
from tbdprof.hooks import Drained
from tbdprof.hooks.on_tensorflow.flops import works
from tbdprof.hooks.on_tensorflow.flops.call_shapes import Arguments
from tbdprof.hooks.on_tensorflow.kernels import gpu_activity, xla
from tbdprof.hooks.on_tensorflow.kernels.spans import Ran, spans
from tbdprof.hooks.on_tensorflow.operators import eager
from tbdprof.hooks.on_tensorflow.operators.graphs import UNKNOWN, Graphs, Node
from tbdprof.hooks.on_tensorflow.operators.runs import Runs
from tbdprof.hooks.on_tensorflow.session.events import OpEvent, Trace
from tbdprof.hooks.on_tensorflow.session.session import Session
from tbdprof.hooks.on_tensorflow.watch.watch import Watch

_BEGIN = "kernels"
_CHEAP = "this build of TensorFlow tells no level of its traces: operators it has come to think cheap are left out"
_LOST = "TensorFlow's profiler lost {} events"
_UNCOUNTED = "{} of {} products could not be followed to what they multiply, and are not counted"
_UNKNOWN = "{} of {} operators ran in functions that are not known: they are in no layer and no phase"
_ELSEWHERE = "{} of {} operators ran in eager mode on other threads: they are in no layer and no phase"
_PRODUCTS = (Operation.CONVOLUTION, Operation.MATMUL)
_LOADING = frozenset({"IteratorGetNext", "IteratorGetNextSync", "IteratorGetNextAsOptional"})


class KernelsWindow:
    """Follows operators from its making until `stop`; raises UnavailableError where another profiler is active.

    In eager mode the operators of the thread that made it are followed.
    """

    def __init__(self, watch: Watch, graphs: Graphs) -> None:
        watch.look()
        self._graphs = graphs
        self._marks: list[int] = []
        self._missing: dict[str, str] = {}
        self._trace: Trace | None = None
        self._session = Session()
        self._session.start()
        with ExitStack() as put_back:
            put_back.callback(self._end)
            self._log = eager.Log(graphs.tracing)
            put_back.callback(self._log.close)
            self._arguments = Arguments()
            put_back.callback(self._arguments.close)
            self._session.mark(_BEGIN)
            self._put_back = put_back.pop_all()

    def mark_step(self) -> None:
        """Mark the end of a step."""
        self._marks.append(len(self._marks) + 1)
        self._log.step()
        self._graphs.tracing.here.phase = Phase.OUTSIDE

    def stop(self) -> None:
        """End the session, whatever is raised on the way; does nothing the second time."""
        self._put_back.close()

    def drain(self, strings: Strings) -> Drained:
        """Return the spans of operators and layers, and what GPUs executed in them."""
        trace, self._trace = self._trace, None
        if trace is None:
            return Drained({}, self._marks, self._missing)
        trace.hlo_ops += gpu_activity.instructions(trace)
        ran = [*self._operators(trace), *xla.instructions(trace, self._graphs)]
        if trace.leaves_out:
            self._missing["cheap kernels"] = _CHEAP
        if trace.dropped:
            self._missing["kernels"] = _LOST.format(trace.dropped)
        products = [each for each in ran if each.node.operation in _PRODUCTS]
        lost = sum(each.node.work is None for each in products)
        if lost:
            self._missing["counts of kernels"] = _UNCOUNTED.format(lost, len(products))
        table = spans(ran, strings)
        of_gpus = gpu_activity.build(trace, table, strings)
        return Drained({"span": table, **of_gpus.tables}, self._marks, self._missing | of_gpus.missing)

    def _end(self) -> None:
        try:
            self._trace = self._session.stop()
        except UnavailableError as error:
            self._missing["kernels"] = str(error)

    def _operators(self, trace: Trace) -> list[Ran]:
        runs, nodes = Runs(trace, self._graphs, self._arguments.of_calls), self._asked(trace)
        told = [(op, self._node(op, runs, nodes)) for op in trace.ops]
        elsewhere = sum(op.is_eager and id(op) not in nodes for op in trace.ops)
        if elsewhere:
            self._missing.setdefault("layers of kernels", _ELSEWHERE.format(elsewhere, len(told)))
        unknown = sum(node is None for _, node in told)
        if unknown:
            self._missing.setdefault("layers of kernels", _UNKNOWN.format(unknown, len(told)))
        return [Ran(op.op, op.thread, op.start_ns, op.end_ns, node or UNKNOWN) for op, node in told]

    def _asked(self, trace: Trace) -> dict[int, Node]:
        """Return what Python asked for, by the id of the event."""
        threads = {mark.thread for mark in trace.marks if mark.name == _BEGIN}
        mine = [op for op in trace.ops if op.is_eager and op.thread in threads]
        found = eager.join(self._log.asked, mine, self._missing)
        return {id(op): node for op, node in zip(mine, found, strict=True)}

    def _node(self, op: OpEvent, runs: Runs, asked: dict[int, Node]) -> Node | None:
        if op.op in _LOADING:
            return Node(Phase.DATA, None, Operation.OTHER)
        if op.is_eager:
            return asked.get(id(op)) or eager.by_type(op)
        function = runs.function(op)
        if runs.is_loading(op):
            return Node(Phase.DATA, None, works.operation(op.op))
        return self._graphs.find(op.node, op.op, function, runs.given(op))
