"""The operators of executors: each request is of a known node, and the graph says whose gradient a node computes."""

from collections.abc import Mapping, Sequence

import mxnet as mx
from mxnet.executor import Executor

from tbdprof.hooks.on_mxnet.kernels.facts import Facts
from tbdprof.hooks.on_mxnet.session import graphs
from tbdprof.hooks.on_mxnet.session.calls import Note
from tbdprof.hooks.on_mxnet.session.engine import Push
from tbdprof.hooks.on_mxnet.session.executions import NodeRun
from tbdprof.hooks.on_mxnet.session.graphs import Node, Printed
from tbdprof.hooks.on_mxnet.watch import layers

_BACKWARD = "_backward"


def name(pushes: Sequence[Push], facts: Mapping[int, Facts], executors: Mapping[int, Executor]) -> None:
    """Give the operators of executors their layer, what they compute, and the source of each gradient."""
    known = {handle: _Graph(executor) for handle, executor in executors.items()}
    last: dict[tuple[int, str], int] = {}  # the latest request of a node, by executor and name
    for push in pushes:
        asked = push.note.asked if isinstance(push.note, Note) else None
        graph = known.get(asked.executor) if isinstance(asked, NodeRun) else None
        if graph is None or not isinstance(asked, NodeRun) or asked.node >= len(graph.nodes):
            continue
        node = graph.nodes[asked.node]
        source = graph.source(node)
        facts[push.number].layer = graph.layer(source or node)
        if source is not None:
            facts[push.number].source = last.get((asked.executor, source.name), -1)
        elif node.operator == push.name:
            last[asked.executor, node.name] = push.number
            facts[push.number].computed = graph.computed.get(node.name)


class _Graph:
    """An executor's graph."""

    def __init__(self, executor: Executor) -> None:
        self.nodes = graphs.printed(executor.debug_str())
        self.computed = _computed(executor)
        inputs = executor._symbol.list_inputs()  # noqa: SLF001
        aside = {argument for argument, array in executor.arg_dict.items() if executor.grad_dict[argument] is None}
        self._parameters = set(inputs) - aside
        self._named = {node.name: node for node in self.nodes if node.operator}

    def source(self, node: Printed) -> Printed | None:
        """Return the node whose gradient a node computes, or None if it computes no gradient."""
        before, found, _ = node.name.rpartition(_BACKWARD)
        if not found and not node.operator.startswith(_BACKWARD):
            return None
        return self._named.get(before) or self._named.get(node.forward)

    def layer(self, node: Printed) -> str:
        """Return a node's layer."""
        return layers.of_symbol(node.name, [each for each in node.inputs if each in self._parameters])


def _computed(executor: Executor) -> dict[str, Node]:
    """Return what the nodes of the executor's symbol compute, by name; of nodes with one name, the last."""
    try:
        return {node.name: node for node in graphs.Graphs().nodes(graphs.of_executor(executor))}
    except mx.base.MXNetError:  # its shapes do not follow from those of its arguments
        return {}
