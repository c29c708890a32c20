"""What a run leaves behind, so that two runs can be compared: digests of numbers, and the state of the process."""

import gc
import hashlib
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np


def digest(parts: Iterable[tuple[str, bytes]]) -> str:
    """Return the SHA-256 of named bytes."""
    sums = hashlib.sha256()
    for name, content in parts:
        sums.update(f"{name}:{len(content)}:".encode())
        sums.update(content)
    return sums.hexdigest()


def generators() -> dict[str, str]:
    """Return the state of the generators that belong to no framework."""
    return {
        "random": digest([("state", repr(random.getstate()).encode())]),
        "numpy.random": digest([("state", repr(np.random.get_state()).encode()), *_drawn()]),
    }


def process() -> dict[str, object]:
    """Return what else a profiler might have left changed in this process."""
    return {
        "environment": dict(sorted(os.environ.items())),
        "signal handlers": [str(signal.getsignal(number)) for number in sorted(signal.valid_signals())],
        "warning filters": [str(each) for each in warnings.filters],
        "showwarning": place(warnings.showwarning),
        "finders": [str(getattr(each, "__name__", type(each).__name__)) for each in sys.meta_path],
        "path": sys.path,
        "excepthook": place(sys.excepthook),
        "tracing": [str(sys.gettrace()), str(sys.getprofile())],
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "gc": [gc.isenabled(), gc.get_threshold(), len(gc.callbacks)],
        "files": sorted(_open_files()),
        "switch interval": sys.getswitchinterval(),
    }


def place(function: object) -> str:
    """Return where a function was written: a wrapper, whatever it calls itself, is at another place."""
    plain = getattr(function, "__func__", function)
    code = getattr(plain, "__code__", None)
    if code is None:
        return f"{type(plain).__name__} {getattr(plain, '__qualname__', '?')}"
    return f"{plain.__qualname__} {code.co_filename}:{code.co_firstlineno}"


def methods(*types: type) -> dict[str, str]:
    """Return where every function in some classes was written."""
    return {
        f"{each.__qualname__}.{name}": place(value)
        for each in types
        for name, value in sorted(vars(each).items())
        if callable(value) or isinstance(value, staticmethod | classmethod | property)
    }


def _drawn() -> Iterator[tuple[str, bytes]]:
    yield "drawn", np.random.standard_normal(3).tobytes()


def _open_files() -> Iterator[str]:
    for link in Path("/proc/self/fd").iterdir():
        try:
            yield str(link.readlink()).partition(":")[0]
        except OSError:  # the listing's own descriptor
            continue
