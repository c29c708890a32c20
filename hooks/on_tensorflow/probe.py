"""The most this CPU can do in TensorFlow, found out by a process of its own.

TensorFlow's allocator keeps what it once had, and its peak never goes back: in the watched process the probe would be
seen in every figure about memory.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import cache
from typing import Any

import tensorflow as tf

from tbdprof.errors import UnavailableError
from tbdprof.hooks import probing
from tbdprof.hooks.probing import Candidate, Convolution
from tbdprof.records import Peaks
from tbdprof.units import bytes_text

_DTYPES = {"fp32": tf.float32, "fp64": tf.float64, "bf16": tf.bfloat16}
_REFUSED = "not measured: TensorFlow has no probe for this precision on a CPU"
_HALF = 0.5
_PATIENCE_S = 120
# Isolated, for a profiled script's PYTHONPATH would attach tbdprof to this process as well.
_PROGRAM = """
import json, sys
sys.path[:], precisions, threads = json.loads(sys.argv[1])
import tensorflow as tf
tf.config.threading.set_intra_op_parallelism_threads(threads)
tf.config.set_visible_devices([], "GPU")
from tbdprof.hooks.on_tensorflow import probe
print(probe.here(precisions, threads))
"""


def measure(precisions: Sequence[str]) -> Peaks:
    """Return the best of a fixed set of operators, with the threads one has in this process; measured once a process.

    Raises UnavailableError where the other process cannot be had or fails.
    """
    return _measured(tuple(precisions), threads())


def threads() -> int:
    """Return how many threads one operator may use."""
    return tf.config.threading.get_intra_op_parallelism_threads() or len(os.sched_getaffinity(0))


@cache
def _measured(precisions: tuple[str, ...], count: int) -> Peaks:
    order = json.dumps([sys.path, precisions, count])
    command = [sys.executable, "-I", "-W", "ignore", "-c", _PROGRAM, order]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S, check=True, env=environment)
        return Peaks(**json.loads(done.stdout.splitlines()[-1]))
    except (OSError, subprocess.SubprocessError, ValueError, LookupError, TypeError) as error:
        raise UnavailableError(f"the process that was to measure this CPU's peak failed: {_reason(error)}") from error


def here(precisions: Sequence[str], count: int) -> str:
    """Return the peaks as JSON, measured in this process with a number of threads."""
    products = {
        precision: list(_products(_DTYPES[precision], count)) for precision in precisions if precision in _DTYPES
    }
    refused = {precision: _REFUSED for precision in precisions if precision not in _DTYPES}
    return json.dumps(asdict(probing.measure(products, list(_streams()), refused, count)))


def _reason(error: Exception) -> str:
    told = getattr(error, "stderr", None) or str(error)
    return str(told).strip().rpartition("\n")[2] or type(error).__name__


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
    """Return what runs an operator; raises RuntimeError, as the probe of every framework does, where it cannot."""

    def run() -> object:
        try:
            return operator()
        except tf.errors.OpError as error:
            raise RuntimeError(error.message) from error

    return run


def _constant(dtype: Any, *shape: int) -> Any:
    return tf.fill(shape, tf.constant(_HALF, dtype))
