"""The device and the data type of a suite model in TensorFlow."""

import tensorflow as tf

from tbdprof.suite.workload import Config

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
