"""Peak rates of this CPU in TensorFlow, measured by a process of its own.

TensorFlow's allocator keeps the memory that it once had, and its peak never goes down. In the watched process the probe
would show in every memory figure.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from tbdprof.facts.records import Peaks
from tbdprof.facts.units import bytes_text
from tbdprof.hooks import probing
from tbdprof.hooks.probing import Candidate, Convolution

_DTYPES = {"fp32": tf.float32, "fp64": tf.float64, "bf16": tf.bfloat16}
_REFUSED = "not measured: TensorFlow has no probe for this precision on a CPU"
# The precision of matmuls and convolutions under Keras's policies, except those that use FP32.
_POLICIES = {
    "mixed_bfloat16": "bf16",
    "bfloat16": "bf16",
    "mixed_float16": "fp16",
    "float16": "fp16",
    "float64": "fp64",
}
_HALF = 0.5


def measure(precisions: Sequence[str]) -> Peaks:
    """Return the best rates of a fixed set of operators with this process's thread count; once quiet, measure no more.

    The precision of Keras's policy is also measured, because the user's own training loop does not report it otherwise.

    Raise UnavailableError if the other process does not start or fails.
    """
    policy = _POLICIES.get(keras.config.dtype_policy().name)
    return _measured(tuple(dict.fromkeys([*precisions, *([] if policy is None else [policy])])), threads())


def threads() -> int:
    """Return how many threads one operator may use."""
    return tf.config.threading.get_intra_op_parallelism_threads() or len(os.sched_getaffinity(0))


@probing.UntilQuiet
def _measured(precisions: tuple[str, ...], count: int) -> Peaks:
    return probing.apart("tensorflow", precisions, count)


def here(precisions: Sequence[str], count: int) -> Peaks:
    """Return the peaks, measured with a number of threads in this process, which has not computed anything yet."""
    tf.config.threading.set_intra_op_parallelism_threads(count)
    tf.config.set_visible_devices([], "GPU")
    products = {
        precision: list(_products(_DTYPES[precision], count)) for precision in precisions if precision in _DTYPES
    }
    refused = {precision: _REFUSED for precision in precisions if precision not in _DTYPES}
    return probing.measure(products, list(_streams()), refused, count)


def _products(dtype: Any, count: int) -> Iterator[Candidate]:
    rows = probing.rows(count)

    def product() -> Callable[[], object]:
        left, right = _constant(dtype, rows, probing.WIDTH), _constant(dtype, probing.WIDTH, probing.WIDTH)
        return _running(lambda: tf.matmul(left, right))

    yield Candidate(f"matrix product {probing.product_size(count)}", probing.product_flops(count), product)
    images = probing.images(count)
    for each in probing.CONVOLUTIONS:
        yield Candidate(each.name(images), each.flops(images), _convolution(each, images, dtype))


def _convolution(convolution: Convolution, images: int, dtype: Any) -> Callable[[], Callable[[], object]]:
    kernel, side = convolution.kernel, convolution.side

    def prepare() -> Callable[[], object]:
        maps = _constant(dtype, images, side, side, convolution.inputs)
        weight = _constant(dtype, kernel, kernel, convolution.inputs, convolution.outputs)
        return _running(lambda: tf.nn.conv2d(maps, weight, 1, "SAME"))

    return prepare


def _streams() -> Iterator[Candidate]:
    rows = probing.ARRAY_BYTES // (4 * probing.WIDTH)

    def add_number() -> Callable[[], object]:
        array = _constant(tf.float32, rows, probing.WIDTH)
        return _running(lambda: array + _HALF)

    def rectify() -> Callable[[], object]:
        array = _constant(tf.float32, rows, probing.WIDTH)
        return _running(lambda: tf.nn.relu(array))

    def read() -> Callable[[], object]:
        array, row = _constant(tf.float32, probing.WIDTH, rows), _constant(tf.float32, 1, probing.WIDTH)
        return _running(lambda: tf.matmul(row, array))

    size = bytes_text(probing.ARRAY_BYTES)
    yield Candidate(f"number added to {size}", 2 * probing.ARRAY_BYTES, add_number)
    yield Candidate(f"relu of {size}", 2 * probing.ARRAY_BYTES, rectify)
    yield Candidate(f"matrix product of one row that reads {size}", probing.ARRAY_BYTES, read)


def _running(operator: Callable[[], object]) -> Callable[[], object]:
    """Return a function that runs an operator; if that fails, it raises RuntimeError, as every framework's probe."""

    def run() -> object:
        try:
            return operator()
        except tf.errors.OpError as error:
            raise RuntimeError(error.message) from error

    return run


def _constant(dtype: Any, *shape: int) -> Any:
    return tf.fill(shape, tf.constant(_HALF, dtype))
