"""Replaced functions of TensorFlow: arguments of any name pass, and no failure of tbdprof reaches the caller."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
tracing = pytest.importorskip("tbdprof.hooks.on_tensorflow.watch.tracing")
watching = pytest.importorskip("tbdprof.hooks.on_tensorflow.watch.watch")
layers = pytest.importorskip("tbdprof.hooks.on_tensorflow.watch.layers")
waiting = pytest.importorskip("tbdprof.hooks.waiting")


class Session:
    """Takes the markers of a window."""

    def mark(self, name: str) -> None:
        pass


class Scaled(keras.layers.Layer):  # type: ignore[misc]
    """Its arguments have the names of what is replaced around it."""

    def call(self, given: Any, layer: float = 1.0, thing: float = 1.0, original: float = 1.0) -> Any:
        return given * layer * thing * original


@pytest.fixture
def watch() -> Iterator[Any]:
    watch, notes = watching.Watch(lambda *_: None), tracing.Tracing(layers.Layers())
    watch.on_update(lambda _: None)
    watch.open_window(Session(), reads_owners=True)
    notes.begin()
    notes.open_window(lambda *_: None)
    yield watch
    notes.close_window()
    notes.end()
    watch.close()


def test_arguments_of_the_user_have_any_name(watch: Any) -> None:
    @tf.function  # type: ignore[untyped-decorator]
    def product(function: Any, thing: Any) -> Any:
        return function * thing

    assert Scaled()(tf.constant(2.0), layer=3.0, thing=5.0, original=7.0).numpy() == 210
    assert product(function=tf.constant(2.0), thing=tf.constant(3.0)).numpy() == 6


def test_a_module_may_have_an_attribute_of_the_name_that_torch_uses() -> None:
    class Two(tf.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first, self._modules = keras.layers.Dense(2), ["first"]

    named, module = layers.Layers(), Two()
    named.add("", module)
    assert named.path(module.first) == "first"


def test_a_failure_to_read_gradients_waits_until_tbdprof_is_called(watch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise KeyError("planted")

    monkeypatch.setattr(watch.watched, "variables", fails)
    weight = tf.Variable(3.0)
    with tf.GradientTape() as tape:
        loss = weight * weight
    assert tape.gradient(loss, weight).numpy() == 6
    with pytest.raises(KeyError, match="planted"):
        waiting.raise_waiting()
    waiting.raise_waiting()  # once


def test_batches_that_keras_and_functions_are_given_as_numpy_arrays_are_seen(watch: Any) -> None:
    model = keras.Sequential([keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    model.train_on_batch(np.zeros((3, 5)), np.zeros((3, 2)))
    watch.batches.step_ended()

    @tf.function  # type: ignore[untyped-decorator]
    def stepped(batch: Any) -> Any:
        return batch + 1

    stepped(np.zeros((7, 4), np.int32))
    watch.batches.step_ended()

    assert watch.batches.take() == [{"samples": 3}, {"samples": 7, "tokens": 28}]
