"""What a loop within a function traced for any size is given, once the function's own arguments are known."""

import importlib.util
from typing import Any

import pytest

if importlib.util.find_spec("tensorflow") is None:
    pytest.skip("tensorflow is not installed", allow_module_level=True)

import tensorflow as tf

from tbdprof.facts.records import AllocationKind
from tbdprof.hooks.on_tensorflow.flops.run_shapes import RunShapes
from tbdprof.hooks.on_tensorflow.flops.sizes import SizedGraphs
from tbdprof.hooks.on_tensorflow.operators.functions import Reading
from tbdprof.hooks.on_tensorflow.operators.graphs import Graphs
from tbdprof.hooks.on_tensorflow.operators.node import Place
from tbdprof.hooks.on_tensorflow.operators.runs import Runs
from tbdprof.hooks.on_tensorflow.session.events import FunctionEvent, MemoryEvent, OpEvent, Trace
from tbdprof.hooks.on_tensorflow.watch.layers import Layers


def loop(rows: tf.Tensor) -> tf.Tensor:
    return tf.while_loop(lambda step, _: step < 3, lambda step, x: (step + 1, tf.matmul(x, rows, True)), (0, rows))[1]


def test_the_body_of_a_loop_is_given_what_the_loop_is() -> None:
    graph = tf.function(loop).get_concrete_function(tf.TensorSpec((None, None))).graph
    (call,) = (each for each in graph.get_operations() if "While" in each.type)
    body = tf.function(loop).get_concrete_function(tf.TensorSpec((5, 5))).graph  # any other than the caller's
    caller, within = Reading("caller", graph, None, Layers()), Reading("body", body, None, Layers())
    place = Place(within, body.get_operations()[0], ((caller, call),))
    given_at = SizedGraphs().given_at
    shapes = given_at(place, ((4, 4),))

    assert isinstance(shapes, tuple)
    assert len(shapes) == len(call.inputs)
    assert shapes.count((4, 4)) == 2  # what goes round, and what each round takes
    assert given_at(Place(within, body.get_operations()[0]), ((4, 4),)) == ((4, 4),)
    assert given_at(place, 4) == 4


def recurrent_network() -> Any:
    """Return a network with its gradients, traced for any batch."""
    kernel, recurrent = tf.Variable(tf.ones((3, 4))), tf.Variable(tf.ones((4, 4)))

    def trained(sequences: tf.Tensor) -> list[tf.Tensor]:
        parts = tf.TensorArray(tf.float32, 5).unstack(tf.transpose(sequences, (1, 0, 2)))

        def step(time: tf.Tensor, state: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return time + 1, tf.tanh(parts.read(time) @ kernel + state @ recurrent)

        with tf.GradientTape() as tape:
            first = tf.zeros((tf.shape(sequences)[0], 4))
            last = tf.while_loop(lambda time, _: time < 5, step, (0, first), maximum_iterations=5)[1]
        return tape.gradient(last, [kernel, recurrent])

    return tf.function(trained).get_concrete_function(tf.TensorSpec((None, 5, 3)))


def products(graphs: Graphs, function: str, sized: SizedGraphs) -> list[list[tuple[int | None, ...]]]:
    """Return the shapes that each product takes and outputs, for a batch of 8."""
    reading = graphs.reading(function)
    assert reading is not None
    found = [
        sized.operator(within, operator, 8)
        for within in graphs.within(reading)
        for operator in within.operators
        if operator.type == "MatMul"
    ]
    return [[tuple(tensor.shape.as_list()) for tensor in (*each.inputs, *each.outputs)] for each in found]


def test_what_a_loop_keeps_for_its_gradients_has_the_batch_as_its_first_axis() -> None:
    """A recurrent network: each product of its loops is known by the batch alone, in both directions."""
    network, of_input, of_state, batch = recurrent_network(), (3, 4), (4, 4), (8, 4)
    assert sorted(products(Graphs(), network.name.decode(), SizedGraphs())) == sorted(
        [
            [(8, 3), of_input, batch],
            [batch, of_state, batch],
            [(8, 3), batch, of_input],
            [batch, of_input, (8, 3)],
            [batch, batch, of_state],
            [batch, of_state, batch],
        ]
    )


@pytest.mark.parametrize(("rows", "known"), [(8, 2), (6, 0)])
def test_a_loop_in_which_a_product_was_of_another_size_is_not_counted_by_the_batch(rows: int, known: int) -> None:
    network, graphs, sized = recurrent_network(), Graphs(), SizedGraphs()
    name = network.name.decode()

    def made(node: str, shape: str) -> MemoryEvent:
        return MemoryEvent(0, 1, AllocationKind.ALLOCATED, "cpu", 1, 1, 1, 1, 1, node, "output", 1, shape, step=1)

    trace = Trace(
        ops=[OpEvent(1, "zeros", "Fill", 0, 1, step=1)],
        memory=[made("zeros", "[8,4]"), made("while/body/_1/while/matmul", f"[{rows},4]")],
        functions=[FunctionEvent(name, 1, 0, 1, step=1)],
    )
    assert RunShapes(trace, graphs, Runs(trace, graphs), {}, sized).given(trace.ops[0]) == 8
    forward = [each for each in products(graphs, name, sized) if each[1:] in ([(3, 4), (8, 4)], [(4, 4), (8, 4)])]
    assert len([each for each in forward if each[0] in ((8, 3), (8, 4))]) - 1 == known  # and the state's gradient
