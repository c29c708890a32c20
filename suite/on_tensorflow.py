"""The device, the data type and the switches of a suite model in TensorFlow."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

import tensorflow as tf
from tensorflow import keras

from tbdprof.suite.switches import CHECKPOINTING, EAGER, JIT, is_on
from tbdprof.suite.workload import Config

_Function = TypeVar("_Function", bound=Callable[..., Any])
POLICIES = {"fp32": "float32", "tf32": "float32", "fp64": "float64", "bf16": "mixed_bfloat16"}


def device_of(config: Config) -> str:
    """Return the requested device; "auto" means a GPU if there is one."""
    kind, _, number = config.device.partition(":")
    if kind == "cuda" or (kind == "auto" and tf.config.list_physical_devices("GPU")):
        return f"/GPU:{number or 0}"
    return "/CPU:0"


def dtype_of(config: Config) -> tf.DType:
    """Return the data type of weights: float32 for bf16 (set by a Keras policy) and for tf32 (set on the GPU)."""
    return tf.float64 if config.precision == "fp64" else tf.float32


def policy_of(config: Config) -> str:
    """Return the name of Keras' data type policy for the requested precision."""
    return POLICIES[config.precision]


def at_least_float32(scores: tf.Tensor) -> tf.Tensor:
    """Return scores in a data type precise enough to sum their exponentials."""
    return tf.cast(scores, tf.float32) if scores.dtype == tf.bfloat16 else scores


def traced(config: Config, **settings: Any) -> Callable[[_Function], _Function]:
    """Return what makes a traced function of a training step, or what leaves it as it is if all is to run eagerly.

    `settings` are those of `tf.function`.
    """

    def trace(function: _Function) -> _Function:
        if is_on(config, EAGER):
            return function
        made: _Function = tf.function(function, jit_compile=is_on(config, JIT), **settings)
        return made

    return trace


def checkpoint(blocks: Iterable[keras.layers.Layer], config: Config) -> None:
    """Compute the maps within each of the blocks again in the backward pass, if the switch says so."""
    if is_on(config, CHECKPOINTING):
        for block in blocks:
            block.call = _computed_again(block.call)


def _computed_again(call: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
    def again(x: tf.Tensor, **settings: Any) -> tf.Tensor:
        return tf.recompute_grad(partial(call, **settings))(x)  # in a graph, it takes only tensors

    return again
