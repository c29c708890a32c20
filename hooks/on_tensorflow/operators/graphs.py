"""Map nodes that ran in traced functions to their operators and graphs, and to each operator's purpose.

    graphs = Graphs()
    graphs.watch("", model)                # whose layers and weights are to be named
    graphs.begin()                         # functions traced from here on are noted; others are read as they are
    graphs.find(event.node, event.op, name_of_the_function) -> Node | None

In a function that computes gradients, everything that is neither BACKWARD nor UPDATE is FORWARD. Nested gradients are
BACKWARD, like a double backward pass in torch. Layers called while gradients are computed are RECOMPUTE. UPDATE is what
is computed from gradients on the way to the variables that it changes (clipping, weight decay). A function that
computes no gradients is FORWARD if it calls layers, else OUTSIDE.
"""

import weakref
from collections.abc import Iterator, Set
from typing import Any

from tensorflow.python.eager.polymorphic_function.atomic_function import AtomicFunction

from tbdprof.facts.records import Operation, Phase
from tbdprof.hooks.instances import instances_of
from tbdprof.hooks.on_tensorflow.operators import grappler
from tbdprof.hooks.on_tensorflow.operators.functions import (
    CALLS,
    TAPE,
    Reading,
    leading_to,
    origin,
    summands,
    summed_alone,
)
from tbdprof.hooks.on_tensorflow.operators.fusion import first_of, plain, ran_as
from tbdprof.hooks.on_tensorflow.operators.kinds import Shape, kind, operation
from tbdprof.hooks.on_tensorflow.operators.node import Computing, Node, Place
from tbdprof.hooks.on_tensorflow.session.events import FUNCTIONS
from tbdprof.hooks.on_tensorflow.watch.layers import Layers
from tbdprof.hooks.on_tensorflow.watch.tracing import Tracing

_MUST_COMPILE = "_XlaMustCompile"
_BEFORE = 6  # most operators between a matmul or convolution and what uses its result in a compiled region


class Graphs:
    """The functions that ran, and the purpose of their operators."""

    def __init__(self) -> None:
        self.layers = Layers()
        self.tracing = Tracing(self.layers)
        self._readings: dict[str, Reading | None] = {}
        self._nodes: dict[tuple[str, str, str], Node | None] = {}
        self._marks: dict[str, dict[tuple[str, str], list[str]]] = {}

    def watch(self, prefix: str, model: object) -> None:
        """Name the layers of a model; `prefix` begins its parameters' names."""
        self.layers.add(prefix, model)
        self.tracing.follow_modules()
        self.forget()

    def begin(self) -> None:
        """Note from now on how functions are traced."""
        self.tracing.begin()

    def end(self) -> None:
        """Restore everything; notes taken so far are kept."""
        self.tracing.end()

    def forget(self) -> None:
        """Analyze functions again when they are next needed."""
        self._readings.clear()
        self._nodes.clear()
        self._marks.clear()

    def find(self, node: str, op: str, function: str | None) -> Node | None:
        """Return a node that ran, by the type that ran, or None if its function is not known.

        A function that XLA compiled is itself a node of its name.
        """
        if op.startswith(FUNCTIONS) and node == op:
            return self._compiled(op)
        if function is None:
            return None
        key = (function, node, op)
        if key not in self._nodes:
            self._nodes[key] = self._find(*key)
        return self._nodes[key]

    def has(self, node: str, function: str) -> bool:
        """Return whether a function has an operator of a node's name, or had one before the graph was rewritten."""
        reading = self.reading(function)
        return reading is not None and self.place(reading, node) is not None

    def reading(self, name: str) -> Reading | None:
        """Return a traced function, or None if it no longer exists."""
        if name not in self._readings:
            graph = _graph(name)
            notes = None if graph is None else self.tracing.notes(graph)
            self._readings[name] = None if graph is None else Reading(name, graph, notes, self.layers)
        return self._readings[name]

    def place(self, reading: Reading, node: str) -> Place | None:
        """Return a node's operator and function, or None if the function and those it calls have no such operator."""
        for name in grappler.originals(node):
            found = self._exactly(reading, name, ())
            if found is not None:
                return found
        return None

    def within(self, reading: Reading) -> Iterator[Reading]:
        """Yield a function and the functions that it calls."""
        yield reading
        for operator in reading.operators:
            if operator.type in CALLS:
                inner = [self._called(operator, which) for which in CALLS[operator.type]]
                for each in inner:
                    if each is not None:
                        yield from self.within(each)

    def called(self, node: str, function: str) -> str | None:
        """Return the name of the function that a node of another function calls, or None if it calls none."""
        reading = self.reading(function)
        place = None if reading is None else self.place(reading, node)
        within = None if place is None else self._called(place.operator, "")
        return None if within is None else within.name

    def product_before(self, node: str, function: str, known: Set[str]) -> Node | None:
        """Return the nearest matmul or convolution that is this node, or leads to it, and is not named in `known`."""
        reading = self.reading(function)
        place = None if reading is None else self.place(reading, node)
        if reading is None or place is None:
            return None
        level, tensors = [place.operator], list(place.operator.inputs)
        for _ in range(_BEFORE + 1):
            for each in level:
                if operation(each.type) in (Operation.CONVOLUTION, Operation.MATMUL) and each.name not in known:
                    return self._node(reading, Place(place.reading, each, place.above), each.type)
            level = [tensor.op for tensor in tensors]
            tensors = [before for tensor in tensors for before in leading_to(tensor)]
        return None

    def _find(self, function: str, node: str, op: str) -> Node | None:
        reading = self.reading(function)
        if reading is None:
            return None
        place = self.place(reading, node)
        return self._by_name(reading, node, op) if place is None else self._node(reading, place, op)

    def _node(self, reading: Reading, place: Place, op: str) -> Node:
        phase, (product, has_bias) = self._phase(place), first_of(place.operator, op)
        first = Place(place.reading, product, place.above)
        if _is_compiled(place.operator):
            return self._region(place, phase)
        names, added = self._gradients(place, op, self._marked(reading))
        return Node(
            phase,
            self._layer(first),
            _kind(product, op),
            gradients=names,
            adds_to=added,
            source=str(place.operator.name),
            casts=_cast_variable(place),
            computing=Computing(first, op, has_bias),
        )

    def _region(self, place: Place, phase: Phase) -> Node:
        """Describe the call of a compiled region within a function; one that trains outputs the backward pass's."""
        within = self._called(place.operator, "")
        trains = within is not None and any(each.has_tape for each in self.within(within))
        phase = Phase.BACKWARD if trains else phase
        return Node(phase, self._layer(place), Operation.COMPILED, source=str(place.operator.name))

    def _compiled(self, function: str) -> Node:
        """Describe a compiled region; its outputs belong to the backward pass if it computes gradients."""
        reading = self.reading(function)
        trains = reading is not None and any(each.has_tape for each in self.within(reading))
        forward = Phase.OUTSIDE if reading is None else self._default(reading)
        return Node(Phase.BACKWARD if trains else forward, None, Operation.COMPILED, source=function)

    def _by_name(self, reading: Reading, node: str, op: str) -> Node:
        """Return what its name alone shows of a node that no operator of the graph has."""
        phase = Phase.BACKWARD if TAPE in node else self._default(reading)
        return Node(phase, reading.layer_of_scope(node) or None, operation(plain(op)))

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
        return None if attribute is None else self.reading(call.get_attr(attribute).name)

    def _phase(self, place: Place) -> Phase:
        """Return the phase of the outermost call with a phase of its own, else that of the function."""
        chain = (*place.above, (place.reading, place.operator))
        found = next((phase for reading, each in chain if (phase := reading.phase(each)) is not None), None)
        return found or self._default(chain[0][0])

    def _default(self, reading: Reading) -> Phase:
        trains = any(each.has_tape or each.has_layers for each in self.within(reading))
        return Phase.FORWARD if trains else Phase.OUTSIDE

    def _layer(self, place: Place) -> str | None:
        """Return the layer of a place; what a model itself does, under the path "", is in no layer."""
        chain = ((place.reading, place.operator), *reversed(place.above))
        own = next((layer for reading, each in chain if (layer := reading.layer(each))), None)
        if own is not None or not place.above:
            return own
        # The source of a loop's gradients is part of their names, and stands in another function.
        readings = [within for reading, _ in place.above for within in self.within(reading)]
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
        """Return parameters' gradients by function and operator; those of a summand are marked "+"."""
        if reading.name not in self._marks:
            marks: dict[tuple[str, str], list[str]] = {}
            self._marks[reading.name] = marks
            for each in self.within(reading):
                for tensor, name in each.results:
                    if hasattr(tensor, "op"):
                        self._mark(marks, each, tensor, name)
        return self._marks[reading.name]

    def _mark(self, marks: dict[tuple[str, str], list[str]], reading: Reading, tensor: Any, name: str) -> None:
        size = tensor.shape.num_elements()
        tensor = origin(tensor)
        operator = tensor.op
        marks.setdefault((reading.name, operator.name), []).append(name)
        for each in (*summands(operator), *summed_alone(operator, size)):
            marks.setdefault((reading.name, each.name), []).append(f"+{name}")
        within = self._called(operator, "body" if operator.type.endswith("While") else "")
        if within is not None and tensor.value_index < len(within.graph.outputs):
            self._mark(marks, within, within.graph.outputs[tensor.value_index], name)


def _cast_variable(place: Place) -> str:
    """Return the name of the variable that an operator reads in another data type, or "" if it reads none."""
    taken = place.operator.inputs if place.operator.type == "Cast" else ()
    if not taken or taken[0].op.type != "ReadVariableOp":
        return ""
    handle, reading = taken[0].op.inputs[0], place.reading
    for outer, call in (*reversed(place.above), (None, None)):
        if handle.name in reading.variables:
            return reading.variables[handle.name][0]
        places = [each.name for each in reading.graph.inputs]
        if outer is None or call.type not in CALLS or handle.name not in places:
            break
        handle, reading = call.inputs[places.index(handle.name) + (call.type.endswith("If"))], outer
    return ""


def _is_compiled(operator: Any) -> bool:
    """Return whether an operator calls a function that XLA compiles."""
    calls = operator.type in ("PartitionedCall", "StatefulPartitionedCall")
    return calls and _MUST_COMPILE in operator.node_def.attr and bool(operator.get_attr(_MUST_COMPILE))


def _kind(operator: Any, op: str) -> Operation:
    """Return an operator's kind by the type that ran, and by its shapes as far as the graph knows them."""
    inputs, outputs = ([_shape(tensor) for tensor in tensors] for tensors in (operator.inputs, operator.outputs))
    reads = len(inputs) > 0 and operator.inputs[0].op.type == "ReadVariableOp"
    return kind(ran_as(operator, op), inputs, outputs, reads_variable=reads)


def _shape(tensor: Any) -> Shape:
    return tuple(tensor.shape.as_list()) if tensor.shape.is_fully_defined() else None


_known: "weakref.WeakValueDictionary[str, Any]" = weakref.WeakValueDictionary()


def _graph(name: str) -> Any:
    """Return the graph of a traced function, or None if the function no longer exists."""
    if name not in _known:
        for each in instances_of(AtomicFunction):
            if each._cached_graph is not None:  # noqa: SLF001
                _known[each.name.decode()] = each._cached_graph  # noqa: SLF001
    return _known.get(name)
