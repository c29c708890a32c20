"""Where a model of the suite lies in TensorFlow, and in which data type it computes."""

import tensorflow as tf

from tbdprof.suite.workload import Config

POLICIES = {"fp32": "float32", "tf32": "float32", "fp64": "float64", "bf16": "mixed_bfloat16"}


def device_of(config: Config) -> str:
    """Return the device that was asked for; "auto" is a GPU where there is one."""
    kind, _, number = config.device.partition(":")
    if kind == "cuda" or (kind == "auto" and tf.config.list_physical_devices("GPU")):
        return f"/GPU:{number or 0}"
    return "/CPU:0"


def dtype_of(config: Config) -> tf.DType:
    """Return the data type of weights; bf16 is a policy's and tf32 the GPU's, over weights in float32."""
    return tf.float64 if config.precision == "fp64" else tf.float32


def policy_of(config: Config) -> str:
    """Return the name of Keras' data type policy for the precision that was asked for."""
    return POLICIES[config.precision]


def at_least_float32(scores: tf.Tensor) -> tf.Tensor:
    """Return scores in a type in which their exponentials can be added."""
    return tf.cast(scores, tf.float32) if scores.dtype == tf.bfloat16 else scores
