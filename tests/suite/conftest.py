"""What MXNet needs before it is imported, and memory given back after each file of tests."""

import ctypes
import gc
import sys
from collections.abc import Iterator

import numpy as np
import pytest

if "bool" not in np.__dict__:
    np.bool = bool  # numpy 1.24 took the name away, and MXNet 1.9 reads it


@pytest.fixture(scope="module", autouse=True)
def _memory_given_back(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let go of the models that a file of tests keeps: those of all files together take more than 10 GB."""
    yield
    for value in vars(request.module).values():
        if hasattr(value, "cache_clear") and value.__module__ == request.module.__name__:
            value.cache_clear()
    _forget_gradients()
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def _forget_gradients() -> None:
    """Forget the custom gradients in TensorFlow's graphs: its registry would keep each graph, and so its variables."""
    if (ops := sys.modules.get("tensorflow.python.framework.ops")) is not None:
        registered = ops.gradient_registry._registry
        for name in [name for name in registered if name.startswith("CustomGradient-")]:
            del registered[name]
