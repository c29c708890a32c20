"""Shapes of a function traced for arguments of any size, given the sizes of one call.

The shapes of a call's arguments are noted for each call (`call_shapes`). A data set inside a function often yields
tensors whose batch size is not part of the shape, because the last batch may be smaller. Then a run's batch size
follows from what was allocated in it. TensorFlow infers all other shapes again in a copy of the graph that never runs.
A size that does not follow from these stays unknown, such as that of sequences of any length.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from tbdprof.hooks.on_tensorflow.operators.functions import Reading
from tbdprof.hooks.on_tensorflow.operators.node import Place
from tbdprof.hooks.on_tensorflow.session.events import MemoryEvent

Given = tuple[tuple[int, ...] | None, ...]  # the shape of each argument of a function, None if not known

OUTPUT = "output"  # the region of an operator's outputs
_UNKNOWN = -1  # TensorFlow's value for it
_YIELDING = ("IteratorGetNext", "IteratorGetNextSync", "OptionalGetValue", "While", "StatelessWhile")
_FROM_LISTS = ("TensorListGetItem", "TensorListPopBack", "TensorListStack")  # what a loop's steps leave and take


class SizedGraphs:
    """Copies of graphs with shapes filled in for given arguments; each is made once."""

    def __init__(self) -> None:
        self._copies: dict[tuple[Reading, Given | int], Any] = {}

    def operator(self, reading: Reading, operator: Any, given: Given | int | None) -> Any:
        """Return an operator with its shapes for these arguments, if its own shapes are open."""
        if given is None or not is_open(operator):
            return operator
        key = (reading, given)
        if key not in self._copies:
            self._copies[key] = sized(reading.graph, given)
        copy = self._copies[key]
        return operator if copy is None else copy.get_operation_by_name(operator.name)

    def contradict(self, reading: Reading, given: Given | int) -> None:
        """Return operators of a function as they are from now on: these arguments are not what it was given."""
        self._copies[reading, given] = None

    def given_at(self, place: Place, given: Given | int | None) -> Given | int | None:
        """Return the arguments of the function that contains a place, as the calls leading to it pass them on."""
        for reading, call in place.above if isinstance(given, tuple) else ():
            handed = self.operator(reading, call, given).inputs
            shapes = (tensor.shape for tensor in (handed[1:] if call.type.endswith("If") else handed))
            given = tuple(tuple(shape) if shape.is_fully_defined() else None for shape in shapes)
        return given


def sized(graph: Any, given: Given | int) -> Any:
    """Return a copy of a graph with these argument shapes or this batch size, or None if they contradict it."""
    definition = graph.as_graph_def()
    batch = given if isinstance(given, int) else _UNKNOWN
    shapes = {} if isinstance(given, int) else dict(zip((each.op.name for each in graph.inputs), given, strict=True))
    for node in definition.node:
        _size(node, graph.get_operation_by_name(node.name).outputs, shapes.get(node.name), batch)
        for name in [name for name in node.attr if name.startswith("_output_shapes")]:
            del node.attr[name]
    copy = tf.Graph()
    try:
        with copy.as_default():
            tf.graph_util.import_graph_def(definition, name="")
    except ValueError:  # TensorFlow raises this if shapes do not fit
        return None
    return copy


def is_open(operator: Any) -> bool:
    """Return whether some input or output shape of an operator is not fully known."""
    return not all(tensor.shape.is_fully_defined() for tensor in (*operator.inputs, *operator.outputs))


def batch_of(
    events: Iterable[MemoryEvent], operator: Callable[[str], tuple[tuple[int, int], Any] | None]
) -> int | None:
    """Return a run's batch size, taken from what was allocated in it, or None if nothing shows it.

    `operator` returns a node's operator, how many calls lead to it, and its position in its function. The fewest calls
    and the earliest position decide: later, the first axis may combine several axes, or be another one.
    """
    sizes = list[tuple[tuple[int, int], int]]()
    for event in events:
        found = operator(event.node) if event.region == OUTPUT and event.shape else None
        if found is not None and len(found[1].outputs) == 1:
            size = _leading(found[1].outputs[0].shape, json.loads(event.shape))
            if size is not None:
                sizes.append((found[0], size))
    return min(sizes)[1] if sizes else None


def _leading(shape: Any, made: list[int]) -> int | None:
    """Return the size of the first axis, if only that axis was open and the others agree."""
    if shape.rank is None or shape.rank != len(made) or not made or shape[0] is not None:
        return None
    return made[0] if list(shape[1:]) == made[1:] else None


def _size(node: Any, outputs: Sequence[Any], given: tuple[int, ...] | None, batch: int) -> None:
    """Give a node its shape; of what it outputs, an open first axis is the batch."""
    if node.op == "ReadVariableOp":  # the shape known from the variable's handle is not in the definition
        _give(node, outputs[0])
    elif node.op == "Placeholder" and given is not None:
        node.attr["shape"].shape.CopyFrom(tf.TensorShape(given).as_proto())
    elif node.op == "Placeholder":
        _fill(node.attr["shape"].shape, batch)
    elif node.op in _YIELDING:
        for shape in node.attr["output_shapes"].list.shape:
            _fill(shape, batch)
    elif node.op in _FROM_LISTS or (node.op == "Reshape" and outputs[0].op.inputs[1].op.type in _FROM_LISTS):
        _hand_out(node, outputs, batch)


def _give(node: Any, tensor: Any) -> None:
    """Make a node output a tensor of a known shape, whatever its inputs are."""
    node.op = "Placeholder"
    del node.input[:]
    node.attr["shape"].shape.CopyFrom(tensor.shape.as_proto())


def _hand_out(node: Any, outputs: Sequence[Any], batch: int) -> None:
    """Make a node output tensors of the shapes that are known of it, with the batch as an open first axis.

    What is known of the elements of a loop's lists is not in the definition.
    """
    shapes = [tensor.shape.as_proto() for tensor in outputs]
    for shape in shapes:
        _fill(shape, batch, axis=int(node.op == "TensorListStack"))
    node.op = "OutfeedDequeueTuple"
    del node.input[:]
    node.attr.clear()
    node.attr["dtypes"].list.type.extend(tensor.dtype.as_datatype_enum for tensor in outputs)
    node.attr["shapes"].list.shape.extend(shapes)


def _fill(shape: Any, batch: int, axis: int = 0) -> None:
    if len(shape.dim) > axis and shape.dim[axis].size == _UNKNOWN:
        shape.dim[axis].size = batch
