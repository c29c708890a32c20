"""What a loop within a function traced for any size is given, once the function's own arguments are known."""

import importlib.util

import pytest

if importlib.util.find_spec("tensorflow") is None:
    pytest.skip("tensorflow is not installed", allow_module_level=True)

import tensorflow as tf

from tbdprof.hooks.on_tensorflow.flops.sizes import SizedGraphs
from tbdprof.hooks.on_tensorflow.operators.functions import Reading
from tbdprof.hooks.on_tensorflow.operators.node import Place
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
