"""Choose and report whether TensorFlow computes float32 matmuls and convolutions in TF32; restore it after a run."""

from collections.abc import Callable
from functools import lru_cache, partial

import tensorflow as tf

TF32 = "tf32"
_AMPERE = (8, 0)  # the first compute capability with TF32


def choose(precision: str) -> Callable[[], None]:
    """Compute float32 matmuls and convolutions in a precision ("tf32" is TF32); return what restores the setting."""
    settings = tf.config.experimental
    put_back = partial(settings.enable_tensor_float_32_execution, settings.tensor_float_32_execution_enabled())
    settings.enable_tensor_float_32_execution(precision == TF32)
    return put_back


def is_on() -> bool:
    """Return whether float32 matmuls and convolutions run in TF32 here; without a GPU that has TF32 they never do."""
    return bool(tf.config.experimental.tensor_float_32_execution_enabled()) and _can_be()


@lru_cache(maxsize=1)
def _can_be() -> bool:
    gpus = tf.config.get_visible_devices("GPU")
    details = (tf.config.experimental.get_device_details(gpu) for gpu in gpus)
    return any(each.get("compute_capability", (0, 0)) >= _AMPERE for each in details)
