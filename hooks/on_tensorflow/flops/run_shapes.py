"""The argument shapes of each run of a function that was traced for arguments of any size."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tbdprof.hooks.on_tensorflow.flops.sizes import OUTPUT, Given, SizedGraphs, batch_of
from tbdprof.hooks.on_tensorflow.operators.functions import Reading
from tbdprof.hooks.on_tensorflow.operators.graphs import Graphs
from tbdprof.hooks.on_tensorflow.operators.runs import Runs
from tbdprof.hooks.on_tensorflow.session.events import MemoryEvent, OpEvent, Trace

_CHECKED = ("MatMul", "BatchMatMulV2", "BiasAdd")  # a fused product has the name of its bias


class RunShapes:
    """The argument shapes of the runs of one trace."""

    def __init__(
        self, trace: Trace, graphs: Graphs, runs: Runs, calls: Mapping[str, Sequence[Given]], sized: SizedGraphs
    ) -> None:
        """Take the argument shapes of Python's calls in the trace, by function and in order."""
        self._graphs, self._runs, self._sized = graphs, runs, sized
        self._made: defaultdict[int, list[MemoryEvent]] = defaultdict(list)
        for event in trace.memory:
            self._made[event.step].append(event)
        self._given: dict[int, Given | int | None] = self._shapes_of_runs(calls)

    def given(self, op: OpEvent) -> Given | int | None:
        """Return the argument shapes or the batch size of an operator's run, or None if they need not be known."""
        run = self._runs.run(op)
        if run not in self._runs.named:
            return None
        if run not in self._given:
            self._given[run] = self._batch(self._runs.named[run], self._made[run])
        return self._given[run]

    def _shapes_of_runs(self, calls: Mapping[str, Sequence[Given]]) -> dict[int, Given | int | None]:
        """Return the argument shapes of each run of an open function: its k-th call started its k-th run."""
        shapes = dict[int, Given | int | None]()
        runs = Counter(self._runs.named.values())
        counted = Counter[str]()
        for step, name in self._runs.named.items():
            if len(calls.get(name, ())) == runs[name] and self._is_open(name):
                shapes[step] = calls[name][counted[name]]
            counted[name] += 1
        return shapes

    def _is_open(self, function: str) -> bool:
        """Return whether a function was traced for arguments of any size, so that each run has its own shapes."""
        reading = self._graphs.reading(function)
        return reading is not None and any(not each.shape.is_fully_defined() for each in reading.graph.inputs)

    def _batch(self, function: str, events: Iterable[MemoryEvent]) -> int | None:
        """Return a run's batch size, taken from what was allocated in it, or None if it is not known."""
        reading = self._graphs.reading(function)
        if reading is None or not any(each.leaves_batch_open for each in self._graphs.within(reading)):
            return None

        def operator(node: str) -> tuple[tuple[int, int], Any] | None:
            place = self._graphs.place(reading, node)
            if place is None:
                return None
            return (len(place.above), place.reading.place[place.operator.name]), place.operator

        made = list(events)
        batch = batch_of(made, operator)
        if batch is not None:
            self._check(reading, batch, made)
        return batch

    def _check(self, function: Reading, batch: int, events: Iterable[MemoryEvent]) -> None:
        """Take back the batch size from the bodies of loops in which a product was of another size."""
        for event in events:
            place = self._graphs.place(function, event.node) if event.region == OUTPUT and event.shape else None
            if place is not None and place.above and place.operator.type in _CHECKED:
                shape = self._sized.operator(place.reading, place.operator, batch).outputs[0].shape
                if shape.is_fully_defined() and shape.as_list() != json.loads(event.shape):
                    self._sized.contradict(place.reading, batch)
