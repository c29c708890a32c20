"""MXNet's own profiler, as a script uses it."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from tbdprof.hooks.on_mxnet.importing import import_mxnet

vars(np).setdefault("bool", bool)  # which MXNet reads as it is imported, as a script has to, too
import_mxnet()
import mxnet  # noqa: E402


def synchronize() -> None:
    """Wait for MXNet's engine."""
    mxnet.nd.waitall()


@contextmanager
def _profiler(_counted: list[float]) -> Iterator[None]:
    with tempfile.TemporaryDirectory() as folder:
        mxnet.profiler.set_config(
            profile_imperative=True,
            profile_symbolic=True,
            profile_memory=True,
            aggregate_stats=True,
            filename=str(Path(folder) / "trace.json"),
        )
        mxnet.profiler.set_state("run")
        try:
            yield
        finally:
            mxnet.nd.waitall()
            mxnet.profiler.set_state("stop")
            mxnet.profiler.dump()


PEERS = {"MXNet's profiler, memory": _profiler}
