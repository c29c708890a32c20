"""Which traced function each operator that ran belongs to."""

from bisect import bisect_right
from typing import TYPE_CHECKING

from tbdprof.hooks.on_tensorflow.session.events import OpEvent, Trace

if TYPE_CHECKING:
    from tbdprof.hooks.on_tensorflow.operators.graphs import Graphs

LOADING = frozenset({"IteratorGetNext", "IteratorGetNextSync", "IteratorGetNextAsOptional"})  # what takes a batch
_ENDS = ("_Arg", "_Retval")  # what a function is given and returns


class Runs:
    """The runs of functions of one trace.

    The executor tells the run's number around the operators; what it was in when the session ended is not told. Such
    operators are those of a function that was running then and has an operator of that name.
    """

    def __init__(self, trace: Trace, graphs: "Graphs") -> None:
        self._graphs = graphs
        self._functions = [each for each in trace.functions if not each.is_compiled]
        self._starts = [each.start_ns for each in self._functions]
        self.named = {each.step: each.name for each in self._functions if each.step and each.name}  # functions by run

    def function(self, op: OpEvent) -> str | None:
        """Return the name of the function an operator ran in, None where there is none, or none is known."""
        return self.named.get(self.run(op))

    def is_loading(self, op: OpEvent) -> bool:
        """Tell whether an operator is one of a data set's: those run in functions that no Python code called."""
        return bool(op.step) and not op.is_eager and not self.run(op)

    def run(self, op: OpEvent) -> int:
        """Return the number of the run an operator is part of, 0 where it is part of none, or none is known."""
        if op.is_eager or op.step in self.named:
            return 0 if op.is_eager else op.step
        place = bisect_right(self._starts, op.start_ns)
        then = [each for each in reversed(self._functions[:place]) if each.end_ns >= op.start_ns]
        ends = [each.step for each in then if op.op in _ENDS]  # no graph has these by name
        return next((each.step for each in then if self._graphs.has(op.node, each.name)), next(iter(ends), 0))
