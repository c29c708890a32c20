"""TensorFlow's own profiler, as a script uses it."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import tensorflow


def synchronize() -> None:
    """Do nothing: on a CPU, a function returns when its operators are done."""


@contextmanager
def _profiler(_counted: list[float]) -> Iterator[None]:
    with tempfile.TemporaryDirectory() as folder:
        tensorflow.profiler.experimental.start(folder)
        try:
            yield
        finally:
            tensorflow.profiler.experimental.stop()


PEERS = {"TensorFlow's profiler": _profiler}
