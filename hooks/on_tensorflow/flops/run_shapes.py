"""What each run of a function was given that was traced for arguments of any size."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tbdprof.hooks.on_tensorflow.flops.sizes import Given, batch_of
from tbdprof.hooks.on_tensorflow.operators.graphs import Graphs
from tbdprof.hooks.on_tensorflow.operators.runs import Runs
from tbdprof.hooks.on_tensorflow.session.events import MemoryEvent, OpEvent, Trace


class RunShapes:
    """The shapes that the runs of one trace were given."""

    def __init__(self, trace: Trace, graphs: Graphs, runs: Runs, calls: Mapping[str, Sequence[Given]]) -> None:
        """Take what Python gave the functions it called in the trace, call by call."""
        self._graphs, self._runs = graphs, runs
        self._made: defaultdict[int, list[MemoryEvent]] = defaultdict(list)
        for event in trace.memory:
            self._made[event.step].append(event)
        self._given: dict[int, Given | int | None] = self._told(calls)

    def given(self, op: OpEvent) -> Given | int | None:
        """Return what the run an operator is part of was given, or the size of its batch; None: need not be known."""
        run = self._runs.run(op)
        if run not in self._runs.named:
            return None
        if run not in self._given:
            self._given[run] = self._batch(self._runs.named[run], self._made[run])
        return self._given[run]

    def _told(self, calls: Mapping[str, Sequence[Given]]) -> dict[int, Given | int | None]:
        """Return what each run of an open function was given: its k-th call made its k-th run."""
        told = dict[int, Given | int | None]()
        runs = Counter(self._runs.named.values())
        counted = Counter[str]()
        for step, name in self._runs.named.items():
            if len(calls.get(name, ())) == runs[name] and self._is_open(name):
                told[step] = calls[name][counted[name]]
            counted[name] += 1
        return told

    def _is_open(self, function: str) -> bool:
        """Tell whether a function was traced for arguments of any size, so that each run has shapes of its own."""
        reading = self._graphs.reading(function)
        return reading is not None and any(not each.shape.is_fully_defined() for each in reading.graph.inputs)

    def _batch(self, function: str, events: Iterable[MemoryEvent]) -> int | None:
        """Return the size of the batch in a run of a function, by what was allocated in it; None: not told."""
        reading = self._graphs.reading(function)
        if reading is None or not any(each.leaves_batch_open for each in self._graphs.within(reading)):
            return None

        def operator(node: str) -> tuple[int, Any] | None:
            place = self._graphs.place(reading, node)
            return None if place is None else (place.reading.place[place.operator.name], place.operator)

        return batch_of(events, operator)
