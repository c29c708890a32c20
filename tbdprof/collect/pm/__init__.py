"""CUPTI's PM sampling: what the sidecar's two ways to it have in common.

A GPU's hardware counters are read many times a step into a buffer of its driver; who asks need not be the process whose
work is sampled. So a process of its own does it (`sidecar`): its Python environment may be another, it shares no lock
with the training, and it cannot clash with the CUPTI client of a framework's profiler. `with_cupti_python` and
`with_libcupti` do the same by NVIDIA's Python package and by the library alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tbdprof.collect.pm.statuses import name_of

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class CuptiError(Exception):
    """Report that CUPTI refused a call: its status, and what it says beyond that."""

    def __init__(self, call: str, status: int, text: str = "") -> None:
        super().__init__(f"{call}: {name_of(status)} ({status}){f': {text}' if text else ''}")
        self.call = call
        self.status = status
        self.text = text


@dataclass(frozen=True, slots=True)
class Decoded:
    """Samples taken out of the hardware's buffer: one row a sample, times of CUPTI's clock, one column a metric."""

    start: Ints
    end: Ints
    values: Floats
    full: bool = False  # the image that takes them had no room left: the next ones are lost
    overflow: bool = False  # the hardware's buffer had no room left


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is sampled, and how."""

    metrics: tuple[str, ...]
    interval: int  # nanoseconds, or cycles of the system's clock
    by_time: bool  # the interval is in nanoseconds
    buffer_bytes: int  # of the hardware's buffer
    slots: int  # samples that one decoding has room for
    metric_set: str | None = None  # CUPTI's name of the set that the metrics are of


class Sampler(Protocol):
    """One device's PM sampling; every call may raise CuptiError."""

    backend: str  # how it is reached, with versions
    library: str  # version of libcupti
    chip: str  # as CUPTI names it: GH100

    def timestamp(self) -> int:
        """Return the time of CUPTI's clock in nanoseconds."""

    def passes(self, metrics: Sequence[str], metric_set: str | None = None) -> int:
        """Return how many passes some metrics take together; raises CuptiError for a name that the chip has not."""

    def configure(self, wanted: Wanted) -> None:
        """Say what to sample, how often, and for how many samples there is room."""

    def start(self) -> None:
        """Begin to sample."""

    def stop(self) -> None:
        """Stop; what is in the buffer can still be decoded."""

    def decode(self) -> Decoded:
        """Take the samples that are complete out of the buffer."""

    def close(self) -> None:
        """Give everything back."""
