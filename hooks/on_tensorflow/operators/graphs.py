"""What the nodes that ran in traced functions mean: which operator of which graph each is, and what that is for.

    graphs = Graphs()
    graphs.watch("", model)                # whose layers and weights are to be named
    graphs.begin()                         # functions traced from here on are noted; others are read as they are
    graphs.find(event.node, event.op, name_of_the_function) -> Node | None

In a function in which gradients are taken everything is FORWARD that is neither BACKWARD nor UPDATE: nested gradients
are BACKWARD, as a double backward pass is in torch, and layers called while gradients are taken RECOMPUTE. What is
computed from gradients on the way to the variables it changes (clipping, weight decay) is UPDATE. A function in which
none are taken is FORWARD if it calls layers, else OUTSIDE.
"""

import gc
import weakref
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from typing import Any

from tensorflow.python.eager.polymorphic_function.atomic_function import AtomicFunction

from tbdprof.facts.records import Operation, Phase
from tbdprof.facts.work import Work
from tbdprof.hooks.on_tensorflow.flops import works
from tbdprof.hooks.on_tensorflow.flops.counted_graphs import computed, first_of, input_shapes
from tbdprof.hooks.on_tensorflow.flops.operands import plain
from tbdprof.hooks.on_tensorflow.flops.sizes import Given, batch_of
from tbdprof.hooks.on_tensorflow.operators import grappler
from tbdprof.hooks.on_tensorflow.operators.functions import CALLS, TAPE, Reading, leading_to, origin, summands
from tbdprof.hooks.on_tensorflow.session.events import MemoryEvent
from tbdprof.hooks.on_tensorflow.watch.layers import Layers
from tbdprof.hooks.on_tensorflow.watch.tracing import Tracing

COMPILED = "__inference_"  # what an operator's type begins with that runs a compiled function
_BEFORE = 6  # operators between a product and what takes it in a compiled region


@dataclass(frozen=True, slots=True)
class Node:
    """What a node that ran is for.

    `gradients` are the parameters whose full gradient it puts out, one of each output, in the outputs' order; in a loop
    the last of its executions does. `adds_to` is the parameter whose gradient it puts out a summand of: the sum may be
    made in the memory of one of these. `source` is the operator it stands for, "" where only its name was read.
    """

    phase: Phase
    layer: str | None
    operation: Operation
    work: Work | None = None
    shapes: list[list[int]] | None = None
    gradients: tuple[str, ...] = ()
    adds_to: str | None = None
    source: str = ""


UNKNOWN = Node(Phase.OUTSIDE, None, Operation.OTHER)


@dataclass(frozen=True, slots=True)
class Place:
    """An operator in the function it stands in, and the calls that lead to it, the outermost first."""

    reading: Reading
    operator: Any
    above: tuple[tuple[Reading, Any], ...] = ()


class Graphs:
    """The functions that ran, and what their operators mean."""

    def __init__(self) -> None:
        self.layers = Layers()
        self.tracing = Tracing(self.layers)
        self._readings: dict[str, Reading | None] = {}
        self._nodes: dict[tuple[str, str, str, Given | int | None], Node | None] = {}
        self._marks: dict[str, dict[tuple[str, str], list[str]]] = {}

    def watch(self, prefix: str, model: object) -> None:
        """Name the layers of a model, whose parameters' names begin with a prefix."""
        self.layers.add(prefix, model)
        self.tracing.follow_modules()
        self.forget()

    def begin(self) -> None:
        """Note how functions are traced from now on."""
        self.tracing.begin()

    def end(self) -> None:
        """Put everything back; what was noted stays known."""
        self.tracing.end()

    def forget(self) -> None:
        """Read functions anew when they are next asked for."""
        self._readings.clear()
        self._nodes.clear()
        self._marks.clear()

    def find(self, node: str, op: str, function: str | None, given: Given | int | None = None) -> Node | None:
        """Return what a node that ran means, by the type that ran; None where its function is not known.

        `given` is what the function was given in that run, or the size of its batch, for functions that were traced for
        any (`is_open`, `batch`). A function that XLA compiled is itself a node of its name.
        """
        if op.startswith(COMPILED) and node == op:
            return self._compiled(op)
        if function is None:
            return None
        key = (function, node, op, given)
        if key not in self._nodes:
            self._nodes[key] = self._find(*key)
        return self._nodes[key]

    def has(self, node: str, function: str) -> bool:
        """Tell whether a function has an operator of a node's name, or had before it was rewritten."""
        reading = self._reading(function)
        return reading is not None and self._place(reading, node) is not None

    def called(self, node: str, function: str) -> str | None:
        """Return the name of the function that a node of another one calls, None where it is no such call."""
        reading = self._reading(function)
        place = None if reading is None else self._place(reading, node)
        within = None if place is None else self._called(place.operator, "")
        return None if within is None else within.name

    def product_before(self, node: str, function: str, known: Set[str]) -> Node | None:
        """Return the product that a node is or that leads to it, the nearest one that is not known by its name."""
        reading = self._reading(function)
        place = None if reading is None else self._place(reading, node)
        if reading is None or place is None:
            return None
        level, tensors = [place.operator], list(place.operator.inputs)
        for _ in range(_BEFORE + 1):
            for each in level:
                if works.operation(each.type) in (Operation.CONVOLUTION, Operation.MATMUL) and each.name not in known:
                    return self._node(reading, Place(place.reading, each, place.above), each.type, None)
            level = [tensor.op for tensor in tensors]
            tensors = [before for tensor in tensors for before in leading_to(tensor)]
        return None

    def is_open(self, function: str) -> bool:
        """Tell whether a function was traced for arguments of any size, so that each run has shapes of its own."""
        reading = self._reading(function)
        return reading is not None and any(not each.shape.is_fully_defined() for each in reading.graph.inputs)

    def batch(self, function: str, events: Iterable[MemoryEvent]) -> int | None:
        """Return the size of the batch in a run of a function, by what was allocated in it; None: not told."""
        reading = self._reading(function)
        if reading is None or not any(each.leaves_batch_open for each in self._within(reading)):
            return None

        def operator(node: str) -> tuple[int, Any] | None:
            place = self._place(reading, node)
            return None if place is None else (place.reading.place[place.operator.name], place.operator)

        return batch_of(events, operator)

    def _find(self, function: str, node: str, op: str, given: Given | int | None) -> Node | None:
        reading = self._reading(function)
        if reading is None:
            return None
        place = self._place(reading, node)
        return self._by_name(reading, node, op) if place is None else self._node(reading, place, op, given)

    def _node(self, reading: Reading, place: Place, op: str, given: Given | int | None) -> Node:
        phase, (product, has_bias) = self._phase(place), first_of(place.operator, op)
        first = Place(place.reading, product, place.above)
        operator = first.reading.sized(product, _given(first, given))
        kind, work = works.told(computed(operator, op, phase, has_bias))
        marks = self._marked(reading)
        names, added = self._gradients(place, op, marks)
        layer, shapes, source = self._layer(first), input_shapes(operator), str(place.operator.name)
        return Node(phase, layer, kind, work, shapes, names, added, source)

    def _compiled(self, function: str) -> Node:
        """Say what a compiled region is; what it makes is of the backward pass if gradients are taken within."""
        reading = self._reading(function)
        trains = reading is not None and any(each.has_tape for each in self._within(reading))
        forward = Phase.OUTSIDE if reading is None else self._default(reading)
        return Node(Phase.BACKWARD if trains else forward, None, Operation.COMPILED, source=function)

    def _by_name(self, reading: Reading, node: str, op: str) -> Node:
        """Say what a name alone tells, of a node that none of the graph's operators had."""
        phase = Phase.BACKWARD if TAPE in node else self._default(reading)
        return Node(phase, reading.layer_of_scope(node) or None, works.operation(plain(op)))

    def _reading(self, name: str) -> Reading | None:
        if name not in self._readings:
            graph = _graph(name)
            notes = None if graph is None else self.tracing.notes(graph)
            self._readings[name] = None if graph is None else Reading(name, graph, notes, self.layers)
        return self._readings[name]

    def _place(self, reading: Reading, node: str) -> Place | None:
        for name in grappler.originals(node):
            found = self._exactly(reading, name, ())
            if found is not None:
                return found
        return None

    def _exactly(self, reading: Reading, name: str, above: tuple[tuple[Reading, Any], ...]) -> Place | None:
        operator = reading.operator(name)
        if operator is not None:
            return Place(reading, operator, above)
        for outer, which, inner in grappler.calls(name):
            call = reading.operator(outer)
            within = None if call is None else self._called(call, which)
            found = None if within is None else self._exactly(within, inner, (*above, (reading, call)))
            if found is not None:
                return found
        return None

    def _called(self, call: Any, which: str) -> Reading | None:
        attribute = CALLS.get(call.type, {}).get(which)
        return None if attribute is None else self._reading(call.get_attr(attribute).name)

    def _phase(self, place: Place) -> Phase:
        """Return the phase of the outermost call that has one of its own, else the function's."""
        chain = (*place.above, (place.reading, place.operator))
        found = next((phase for reading, each in chain if (phase := reading.phase(each)) is not None), None)
        return found or self._default(chain[0][0])

    def _default(self, reading: Reading) -> Phase:
        trains = any(each.has_tape or each.has_layers for each in self._within(reading))
        return Phase.FORWARD if trains else Phase.OUTSIDE

    def _within(self, reading: Reading) -> Iterator[Reading]:
        """Yield a function and those it calls."""
        yield reading
        for operator in reading.operators:
            if operator.type in CALLS:
                inner = [self._called(operator, which) for which in CALLS[operator.type]]
                for each in inner:
                    if each is not None:
                        yield from self._within(each)

    def _layer(self, place: Place) -> str | None:
        """Return the layer of a place; what a model itself does, whose path is "", is in none."""
        chain = ((place.reading, place.operator), *reversed(place.above))
        own = next((layer for reading, each in chain if (layer := reading.layer(each))), None)
        if own is not None or not place.above:
            return own
        # What a loop's gradients are of is named in their names, and stands in another function.
        readings = [within for reading, _ in place.above for within in self._within(reading)]
        layers = (each.layer_of_scope(place.operator.name) for each in readings)
        return next((layer for layer in layers if layer), None)

    def _gradients(
        self, place: Place, op: str, marks: dict[tuple[str, str], list[str]]
    ) -> tuple[tuple[str, ...], str | None]:
        names = marks.get((place.reading.name, place.operator.name), [])
        if op.endswith("BackpropFilterWithBias"):
            added = [each for each in place.operator.inputs[2].consumers() if each.type == "BiasAddGrad"]
            names = names + [name for each in added for name in marks.get((place.reading.name, each.name), [])]
        full = tuple(name for name in names if not name.startswith("+"))
        return full, next((name[1:] for name in names if name.startswith("+")), None)

    def _marked(self, reading: Reading) -> dict[tuple[str, str], list[str]]:
        """Return the gradients of parameters by function and operator; a summand's are marked "+"."""
        if reading.name not in self._marks:
            marks: dict[tuple[str, str], list[str]] = {}
            self._marks[reading.name] = marks
            for each in self._within(reading):
                for tensor, name in each.results:
                    if hasattr(tensor, "op"):
                        self._mark(marks, each, tensor, name)
        return self._marks[reading.name]

    def _mark(self, marks: dict[tuple[str, str], list[str]], reading: Reading, tensor: Any, name: str) -> None:
        tensor = origin(tensor)
        operator = tensor.op
        marks.setdefault((reading.name, operator.name), []).append(name)
        for each in summands(operator):
            marks.setdefault((reading.name, each.name), []).append(f"+{name}")
        within = self._called(operator, "body" if operator.type.endswith("While") else "")
        if within is not None and tensor.value_index < len(within.graph.outputs):
            self._mark(marks, within, within.graph.outputs[tensor.value_index], name)


def _given(place: Place, given: Given | int | None) -> Given | int | None:
    """Return what the function a place lies in was given: what the calls that lead to it hand on."""
    for reading, call in place.above if isinstance(given, tuple) else ():
        handed = reading.sized(call, given).inputs
        shapes = (tensor.shape for tensor in (handed[1:] if call.type.endswith("If") else handed))
        given = tuple(tuple(shape) if shape.is_fully_defined() else None for shape in shapes)
    return given


_known: "weakref.WeakValueDictionary[str, Any]" = weakref.WeakValueDictionary()


def _graph(name: str) -> Any:
    """Return the graph of a traced function, None where the function is gone."""
    if name not in _known:
        for each in gc.get_objects():
            if isinstance(each, AtomicFunction) and each._cached_graph is not None:  # noqa: SLF001
                _known[each.name.decode()] = each._cached_graph  # noqa: SLF001
    return _known.get(name)
