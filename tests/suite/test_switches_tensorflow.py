"""Each switch in TensorFlow does what it says, and leaves the training as it is but for rounding."""

from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from numpy.typing import NDArray
from tensorflow import keras

from tbdprof import suite
from tbdprof.suite import resnet50, transformer
from tbdprof.suite.on_tensorflow import checkpoint, traced
from tbdprof.suite.transformer import on_tensorflow as transformer_on_tensorflow
from tbdprof.suite.workload import Config

GRAPH = type(tf.function(lambda: None, autograph=False))
SMALL: dict[str, str | int] = {"layers": 1, "vocabulary": 200, "width": 64, "dropout": "off"}


def small(**chosen: str) -> Config:
    options = {**SMALL, **chosen}
    return suite.configure(
        transformer.SPEC, framework="tensorflow", batch_size=2, precision="fp64", seed=1, options=options
    )


@cache
def trained(**chosen: str) -> tuple[Any, list[NDArray[Any]]]:
    """Return a small Transformer after two steps, and its weights."""
    workload = transformer_on_tensorflow.build(transformer.SPEC, small(**chosen))
    workload = workload.__class__(**{**fields(workload), "batches": iter([next(workload.batches)] * 2)})
    for _ in range(2):
        workload.step()
    return workload, [each.numpy() for each in workload.model.trainable_variables]


def fields(workload: Any) -> dict[str, Any]:
    return {name: getattr(workload, name) for name in workload.__dataclass_fields__}


def test_an_eager_step_is_no_function_of_tensorflow() -> None:
    assert not isinstance(trained(eager="on")[0].train_step, GRAPH)
    assert isinstance(trained()[0].train_step, GRAPH)


@pytest.mark.parametrize(("chosen", "must"), [({"jit": "on"}, True), ({}, False)])
def test_xla_must_compile_the_whole_step(chosen: dict[str, str], must: bool) -> None:
    (traced,) = trained(**chosen)[0].train_step._list_all_concrete_functions()

    assert traced.function_def.attr["_XlaMustCompile"].b == must


@pytest.mark.parametrize("name", ["eager", "jit"])
def test_the_training_stays_the_same_but_for_rounding(name: str) -> None:
    plain, switched = trained()[1], trained(**{name: "on"})[1]

    apart = sum(float(np.square(one - other).sum()) for one, other in zip(plain, switched, strict=True))
    assert apart <= 1e-18 * sum(float(np.square(one).sum()) for one in plain)


@cache
def convolved(checkpointing: str) -> tuple[Counter[str], list[NDArray[Any]]]:
    """Return the operators of a training step of three convolutions, two of them in blocks, and its gradients."""
    config = suite.configure(resnet50.SPEC, framework="tensorflow", options={"checkpointing": checkpointing})
    layers = [
        keras.layers.Conv2D(2, 3, activation="tanh", kernel_initializer=keras.initializers.Constant(0.1 * at))
        for at in (1, 2, 3)
    ]
    model = keras.Sequential([keras.Input((9, 9, 2)), *layers])
    checkpoint(layers[1:], config)

    @traced(config)
    def gradients(images: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(images, training=True))
        return list(tape.gradient(loss, model.trainable_variables))

    found = [each.numpy() for each in gradients(tf.ones((1, 9, 9, 2)))]
    (concrete,) = gradients._list_all_concrete_functions()  # type: ignore[attr-defined]
    return Counter(each.type for each in concrete.graph.get_operations()), found


def test_checkpointing_computes_the_blocks_again_and_leaves_the_gradients_as_they_are() -> None:
    (plain, gradients), (again, of_again) = convolved("off"), convolved("on")

    assert (plain["Conv2D"], again["Conv2D"]) == (3, 3 + 2)
    assert all(np.array_equal(one, other) for one, other in zip(gradients, of_again, strict=True))
