"""Where tbdprof fails within TensorFlow's calls, the window is given up, and no bit of the training changes."""

import importlib.util
import re
from collections.abc import Callable

import pytest

if importlib.util.find_spec("tensorflow") is None:
    pytest.skip("tensorflow is not installed", allow_module_level=True)

import keras
import numpy as np
import tensorflow as tf

import tbdprof
from tbdprof.errors import UnavailableError
from tbdprof.hooks.on_tensorflow.facade import TensorflowHook
from tbdprof.hooks.on_tensorflow.session import session
from tbdprof.hooks.on_tensorflow.watch import layers, tracing

STEPS = 40
Ended = Callable[[], object]


def trained(begin: Callable[..., Ended], *, traced: bool) -> list[bytes]:
    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.layers.Input((5,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(3)])
    optimizer = keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)

    def step(data: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(data)))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    ended = begin(model, optimizer)
    taken = tf.function(step) if traced else step
    for place in range(STEPS):
        if traced and place % 4 == 0:
            taken = tf.function(step)  # so that windows see a function being traced
        taken(tf.constant(np.random.rand(4, 5).astype("float32")))
        ended()
    return [each.numpy().tobytes() for each in model.trainable_variables]


@pytest.fixture(autouse=True)
def _unprobed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure no peak: that takes the longest, and nothing here needs one."""

    def unknown(*arguments: object) -> None:
        raise UnavailableError("not measured in this test")

    monkeypatch.setattr(TensorflowHook, "peaks", unknown)


def profiled(*, traced: bool) -> tuple[list[bytes], tbdprof.Profiler]:
    made = list[tbdprof.Profiler]()

    def begin(*watched: object) -> Ended:
        made.append(tbdprof.profile(*watched, framework="tensorflow", warmup=2, steps=3))
        made[0].start()
        return lambda: made[0].step(4)

    try:
        return trained(begin, traced=traced), made[0]
    finally:
        made[0].stop()


class Fails:
    """Fails as a function and as a text."""

    def __call__(self, *arguments: object, **options: object) -> None:
        raise KeyError("planted")

    __add__ = __call__


PLANTED = [
    (session, "MARK", False),
    (layers.Layers, "path", False),
    (layers.Layers, "of_scope", False),
    (tracing, "Interval", True),
]


@pytest.mark.parametrize(("owner", "name", "traced"), PLANTED, ids=lambda each: getattr(each, "__name__", each))
def test_a_planted_failure_changes_no_bit_of_the_training_and_is_reported(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, traced: bool
) -> None:
    alone = trained(lambda *watched: lambda: None, traced=traced)

    monkeypatch.setattr(owner, name, Fails())
    weights, prof = profiled(traced=traced)

    assert weights == alone
    said = [reason for reason in prof.recording.missing.values() if "planted" in reason]
    assert said
    assert all(re.search(r"KeyError: 'planted' .*please report this line$", reason) for reason in said)
