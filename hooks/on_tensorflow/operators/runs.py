"""Which traced function each operator that ran belongs to."""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from tbdprof.hooks.on_tensorflow.flops.sizes import Given
from tbdprof.hooks.on_tensorflow.operators.graphs import Graphs
from tbdprof.hooks.on_tensorflow.session.events import MemoryEvent, OpEvent, Trace

_ENDS = ("_Arg", "_Retval")  # what a function is given and returns
NO_CALLS: Mapping[str, Sequence[Given]] = MappingProxyType({})


class Runs:
    """The runs of functions of one trace.

    The executor tells the run's number around the operators; what it was in when the session ended is not told. Such
    operators are those of a function that was running then and has an operator of that name.
    """

    def __init__(self, trace: Trace, graphs: Graphs, calls: Mapping[str, Sequence[Given]] = NO_CALLS) -> None:
        """Take what Python gave the functions it called in the trace, call by call."""
        self._graphs = graphs
        self._functions = [each for each in trace.functions if not each.is_compiled]
        self._made: defaultdict[int, list[MemoryEvent]] = defaultdict(list)
        for event in trace.memory:
            self._made[event.step].append(event)
        self._starts = [each.start_ns for each in self._functions]
        self._named = {each.step: each.name for each in self._functions if each.step and each.name}
        self._given: dict[int, Given | int | None] = self._told(calls)

    def function(self, op: OpEvent) -> str | None:
        """Return the name of the function an operator ran in, None where there is none, or none is known."""
        return self._named.get(self.run(op))

    def is_loading(self, op: OpEvent) -> bool:
        """Tell whether an operator is one of a data set's: those run in functions that no Python code called."""
        return bool(op.step) and not op.is_eager and not self.run(op)

    def given(self, op: OpEvent) -> Given | int | None:
        """Return what the run an operator is part of was given, or the size of its batch; None: need not be known."""
        run = self.run(op)
        if run not in self._named:
            return None
        if run not in self._given:
            self._given[run] = self._graphs.batch(self._named[run], self._made[run])
        return self._given[run]

    def run(self, op: OpEvent) -> int:
        """Return the number of the run an operator is part of, 0 where it is part of none, or none is known."""
        if op.is_eager or op.step in self._named:
            return 0 if op.is_eager else op.step
        place = bisect_right(self._starts, op.start_ns)
        then = [each for each in reversed(self._functions[:place]) if each.end_ns >= op.start_ns]
        ends = [each.step for each in then if op.op in _ENDS]  # no graph has these by name
        return next((each.step for each in then if self._graphs.has(op.node, each.name)), next(iter(ends), 0))

    def _told(self, calls: Mapping[str, Sequence[Given]]) -> dict[int, Given | int | None]:
        """Return what each run of an open function was given: its k-th call made its k-th run."""
        told = dict[int, Given | int | None]()
        runs = Counter(self._named.values())
        counted = Counter[str]()
        for step, name in self._named.items():
            if len(calls.get(name, ())) == runs[name] and self._graphs.is_open(name):
                told[step] = calls[name][counted[name]]
            counted[name] += 1
        return told
