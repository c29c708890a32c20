"""Whether TensorFlow computes products of float32 in TF32 on a GPU: chosen for a run, put back after it, and told."""

from collections.abc import Callable
from functools import lru_cache, partial

import tensorflow as tf

TF32 = "tf32"
_AMPERE = (8, 0)  # the first compute capability that has it


def choose(precision: str) -> Callable[[], None]:
    """Have products of float32 be computed in that format, with "tf32" in TF32; return what puts it back."""
    settings = tf.config.experimental
    put_back = partial(settings.enable_tensor_float_32_execution, settings.tensor_float_32_execution_enabled())
    settings.enable_tensor_float_32_execution(precision == TF32)
    return put_back


def is_on() -> bool:
    """Return whether products of float32 are computed in TF32 here; without a GPU that has it never."""
    return bool(tf.config.experimental.tensor_float_32_execution_enabled()) and _can_be()


@lru_cache(maxsize=1)
def _can_be() -> bool:
    gpus = tf.config.get_visible_devices("GPU")
    details = (tf.config.experimental.get_device_details(gpu) for gpu in gpus)
    return any(each.get("compute_capability", (0, 0)) >= _AMPERE for each in details)
