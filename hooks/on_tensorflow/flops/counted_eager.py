"""FLOP counts of the operators of eager mode, from Python's calls."""

from dataclasses import replace

import tensorflow as tf

from tbdprof.facts.records import Phase
from tbdprof.hooks.on_tensorflow import precision
from tbdprof.hooks.on_tensorflow.flops import works
from tbdprof.hooks.on_tensorflow.flops.operands import Array, Computed
from tbdprof.hooks.on_tensorflow.operators import eager
from tbdprof.hooks.on_tensorflow.operators.eager import Asked, TensorFacts
from tbdprof.hooks.on_tensorflow.operators.node import Node


def node_of(asked: Asked, phase: Phase) -> Node:
    """Return phase, layer and FLOP count of an operator that Python called."""
    inputs = tuple(_array(tensor) for tensor in asked.inputs)
    computed = Computed(
        type=asked.type,
        inputs=(Array(inputs[0].shape, inputs[0].dtype, is_variable=True), *inputs[1:]) if asked.reads else inputs,
        outputs=tuple(_array(tensor) for tensor in asked.outputs),
        attributes=dict(zip(asked.attributes[::2], asked.attributes[1::2], strict=False)),
        is_backward=phase is Phase.BACKWARD,
        in_tf32=precision.is_on(),
    )
    kind, work = works.kind_and_work(computed)
    shapes = [list(array.shape or ()) for array in inputs]
    return replace(eager.node_of(asked, phase), operation=kind, work=work, shapes=shapes)


def _array(tensor: TensorFacts) -> Array:
    _, shape, number = tensor
    return Array(shape, tf.dtypes.as_dtype(number).name if number else "resource")
