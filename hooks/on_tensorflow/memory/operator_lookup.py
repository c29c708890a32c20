"""Find the purpose of an operator that ran: from the graphs, or in eager mode from Python's call."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tbdprof.facts.records import Operation, Phase
from tbdprof.hooks.on_tensorflow.operators.graphs import Graphs
from tbdprof.hooks.on_tensorflow.operators.node import Node
from tbdprof.hooks.on_tensorflow.operators.runs import LOADING, Runs
from tbdprof.hooks.on_tensorflow.session.events import OpEvent


@dataclass(slots=True)
class Meanings:
    """Looks up operators, each operator of a function once; `asked` maps the `id` of an eager event to its node."""

    graphs: Graphs
    runs: Runs
    asked: Mapping[int, Node]
    unknown: dict[str, int] = field(default_factory=dict)  # operators of which nothing is known -> how often they ran
    _found: dict[tuple[str, str, str | None], Node | None] = field(default_factory=dict)

    def of(self, op: OpEvent) -> Node | None:
        """Return an operator's node, or None if nothing is known; in eager mode the node does not hold the phase."""
        if op.op in LOADING or self.runs.is_loading(op):
            return Node(Phase.DATA, None, Operation.OTHER)
        if op.is_eager:
            return self.asked.get(id(op), Node(Phase.OUTSIDE, None, Operation.OTHER))
        key = (op.node, op.op, self.runs.function(op))
        if key not in self._found:
            self._found[key] = self.graphs.find(*key)
        if self._found[key] is None:
            self.unknown[op.node] = self.unknown.get(op.node, 0) + 1
        return self._found[key]
