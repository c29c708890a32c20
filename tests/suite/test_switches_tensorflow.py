"""Each switch in TensorFlow does what it says, and leaves the training as it is but for rounding."""

from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from numpy.typing import NDArray

from tbdprof import suite
from tbdprof.suite import resnet50, transformer
from tbdprof.suite.resnet50 import on_tensorflow as resnet50_on_tensorflow
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
def graph(checkpointing: str) -> tuple[float, Counter[str]]:
    """Return the loss of ResNet-50, and the operators of its training step."""
    options = {"image_size": 33, "checkpointing": checkpointing}
    config = suite.configure(resnet50.SPEC, framework="tensorflow", batch_size=2, seed=1, options=options)
    workload = resnet50_on_tensorflow.build(resnet50.SPEC, config)
    workload.step()
    (traced,) = workload.train_step._list_all_concrete_functions()
    return float(workload.train_step(*workload.inputs)), Counter(each.type for each in operators(traced.graph))


def operators(graph: Any) -> list[Any]:
    """Return the operators of a graph and of the functions in it."""
    inner = graph._functions.values() if hasattr(graph, "_functions") else ()
    return [*graph.get_operations(), *(each for one in inner for each in operators(one.graph))]


def test_checkpointing_computes_the_blocks_again_and_trains_the_same() -> None:
    (loss, plain), (again_loss, again) = graph("off"), graph("on")

    assert plain["Conv2D"] == 53
    assert again["Conv2D"] == 53 + 52  # the first one is in no block
    assert again_loss == pytest.approx(loss, rel=1e-4)
