"""The operators of executors: each request is of a known node, and the graph says whose gradient a node computes.

A layer of a symbol is a node's name, with which its parameters' names begin ("fc1" of "fc1_weight").
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import mxnet as mx
from mxnet.executor import Executor

from tbdprof.hooks.on_mxnet.session import graphs
from tbdprof.hooks.on_mxnet.session.calls import NodeRun, Note, Stored
from tbdprof.hooks.on_mxnet.session.engine import Push
from tbdprof.hooks.on_mxnet.session.graphs import Node, Printed

_BACKWARD = "_backward"
# The number of a step in an unrolled recurrent network, in the name of a node: "lstm_l0_t3_i2h".
_UNROLLED = re.compile(r"(?:(?<=^)|(?<=_))t\d+_")


class OfNode(NamedTuple):
    """What is known of a request; `source` is the number of the forward operator's request, -1 if there is none."""

    layer: str
    computed: Node | None
    source: int


def nodes(
    pushes: Sequence[Push], executors: Mapping[int, Executor], stored: Mapping[int, Sequence[Mapping[str, Stored]]]
) -> dict[int, OfNode]:
    """Return what is known of the requests of executors, by number.

    `stored` has what the sparse arguments of each forward call of an executor store, by the executor's handle.
    """
    runs = _runs(pushes)
    ran = {handle: run + 1 for run, handle in runs.values()}  # the last run of each is the highest
    calls = {handle: each for handle, each in stored.items() if len(each) == ran.get(handle)}
    known = {handle: _Graph(executor, calls.get(handle, ())) for handle, executor in executors.items()}
    found: dict[int, OfNode] = {}
    last: dict[tuple[int, str], int] = {}  # the latest request of a node, by executor and name
    for push in pushes:
        asked = push.note.asked if isinstance(push.note, Note) else None
        graph = known.get(asked.executor) if isinstance(asked, NodeRun) else None
        if graph is None or not isinstance(asked, NodeRun) or asked.node >= len(graph.nodes):
            continue
        node = graph.nodes[asked.node]
        source = graph.source(node)
        layer = graph.layer(source or node)
        if source is not None:
            found[push.number] = OfNode(layer, None, last.get((asked.executor, source.name), -1))
        elif node.operator == push.name:
            last[asked.executor, node.name] = push.number
            found[push.number] = OfNode(layer, graph.computed(runs[push.number][0]).get(node.name), -1)
        else:
            found[push.number] = OfNode(layer, None, -1)
    return found


def _runs(pushes: Sequence[Push]) -> dict[int, tuple[int, int]]:
    """Return of each request of an executor its run's number and its executor; a run goes up through the nodes."""
    found, last, run = dict[int, tuple[int, int]](), dict[int, int](), dict[int, int]()
    for push in pushes:
        asked = push.note.asked if isinstance(push.note, Note) else None
        if isinstance(asked, NodeRun):
            if asked.node < last.get(asked.executor, asked.node + 1):
                run[asked.executor] = run.get(asked.executor, -1) + 1
            last[asked.executor] = asked.node
            found[push.number] = run[asked.executor], asked.executor
    return found


class _Graph:
    """An executor's graph."""

    def __init__(self, executor: Executor, calls: Sequence[Mapping[str, Stored]]) -> None:
        self.nodes = graphs.printed(executor.debug_str())
        # What the nodes compute differs from call to call only if an argument is sparse.
        self._computed = [_computed(executor, stored) for stored in calls if stored] or [_computed(executor, {})]
        inputs = executor._symbol.list_inputs()  # noqa: SLF001
        aside = {argument for argument, array in executor.arg_dict.items() if executor.grad_dict[argument] is None}
        self._parameters = set(inputs) - aside
        self._named = {node.name: node for node in self.nodes if node.operator}

    def computed(self, run: int) -> dict[str, Node]:
        """Return what the nodes compute in a run, by name."""
        return self._computed[run if len(self._computed) > run else 0]

    def source(self, node: Printed) -> Printed | None:
        """Return the node whose gradient a node computes, or None if it computes no gradient."""
        before, found, _ = node.name.rpartition(_BACKWARD)
        if not found and not node.operator.startswith(_BACKWARD):
            return None
        return self._named.get(before) or self._named.get(node.forward)

    def layer(self, node: Printed) -> str:
        """Return a node's layer."""
        return _layer(node.name, [each for each in node.inputs if each in self._parameters])


def _computed(executor: Executor, stored: Mapping[str, Stored]) -> dict[str, Node]:
    """Return what the nodes of the executor's symbol compute, by name; of nodes with one name, the last."""
    try:
        return {node.name: node for node in graphs.Graphs().nodes(graphs.of_executor(executor, stored))}
    except mx.base.MXNetError:  # its shapes do not follow from those of its arguments
        return {}


def _layer(name: str, parameters: Iterable[str]) -> str:
    """Return the layer of a node: what the names of its parameters have in common, or its own name without them.

    The steps of an unrolled recurrent network share their parameters, so each of its layers counts once.
    """
    scopes = {parameter.rpartition("_")[0] for parameter in parameters}
    return scopes.pop() if len(scopes) == 1 else _UNROLLED.sub("", name)
