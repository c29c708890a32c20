"""What an operator that ran is part of: as the graphs say, and in eager mode as Python asked for it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tbdprof.facts.records import Operation, Phase
from tbdprof.hooks.on_tensorflow.operators.graphs import Graphs
from tbdprof.hooks.on_tensorflow.operators.node import Node
from tbdprof.hooks.on_tensorflow.operators.runs import LOADING, Runs
from tbdprof.hooks.on_tensorflow.session.events import OpEvent


@dataclass(slots=True)
class Meanings:
    """Looks operators up, those of functions once each; `asked` has those of eager mode by the `id` of their event."""

    graphs: Graphs
    runs: Runs
    asked: Mapping[int, Node]
    unknown: dict[str, int] = field(default_factory=dict)  # operators nothing is known of, with how often they ran
    _found: dict[tuple[str, str, str | None], Node | None] = field(default_factory=dict)

    def of(self, op: OpEvent) -> Node | None:
        """Return what an operator is part of, None where nothing is known; in eager mode the phase is not told."""
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
