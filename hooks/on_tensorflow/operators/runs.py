"""Find the traced function of each operator that ran."""

from bisect import bisect_right
from typing import TYPE_CHECKING

from tbdprof.hooks.on_tensorflow.session.events import OpEvent, Trace

if TYPE_CHECKING:
    from tbdprof.hooks.on_tensorflow.operators.graphs import Graphs

LOADING = frozenset({"IteratorGetNext", "IteratorGetNextSync", "IteratorGetNextAsOptional"})  # fetch a batch
_ENDS = ("_Arg", "_Retval")  # a function's arguments and results


class Runs:
    """The runs of functions in one trace.

    The executor reports the run's number around its operators, except for what was unfinished when the session ended.
    Such operators belong to a function that was running then and has an operator of that name.
    """

    def __init__(self, trace: Trace, graphs: "Graphs") -> None:
        self._graphs = graphs
        self._functions = [each for each in trace.functions if not each.is_compiled]
        self._starts = [each.start_ns for each in self._functions]
        self.named = {each.step: each.name for each in self._functions if each.step and each.name}  # run -> function

    def function(self, op: OpEvent) -> str | None:
        """Return the name of an operator's function, or None if there is none or it is not known."""
        return self.named.get(self.run(op))

    def is_loading(self, op: OpEvent) -> bool:
        """Return whether an operator belongs to a data set: those run in functions that no Python code called."""
        return bool(op.step) and not op.is_eager and not self.run(op)

    def run(self, op: OpEvent) -> int:
        """Return the number of an operator's run, or 0 if there is none or it is not known."""
        if op.is_eager or op.step in self.named:
            return 0 if op.is_eager else op.step
        place = bisect_right(self._starts, op.start_ns)
        then = [each for each in reversed(self._functions[:place]) if each.end_ns >= op.start_ns]
        ends = [each.step for each in then if op.op in _ENDS]  # no graph has operators of these names
        return next((each.step for each in then if self._graphs.has(op.node, each.name)), next(iter(ends), 0))
