"""CUPTI's PM sampling: what the sidecar's two ways to use it have in common.

A GPU's hardware counters are read many times per step into a buffer of its driver. The process that reads them need not
be the one whose work is sampled. So a separate process does it (`sidecar`). Its Python environment may be another one,
it shares no lock with the training, and it cannot conflict with the CUPTI client of a framework's profiler.
`with_cupti_python` uses NVIDIA's Python package, and `with_libcupti` does the same with the library alone.
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
    """A call that CUPTI refused: its status, and what else CUPTI says."""

    def __init__(self, call: str, status: int, text: str = "") -> None:
        super().__init__(f"{call}: {name_of(status)} ({status}){f': {text}' if text else ''}")
        self.call = call
        self.status = status
        self.text = text


@dataclass(frozen=True, slots=True)
class Decoded:
    """Samples taken from the hardware's buffer: one row per sample, times of CUPTI's clock, one column per metric."""

    start: Ints
    end: Ints
    values: Floats
    full: bool = False  # the image that receives them is full: the next samples are lost
    overflow: bool = False  # the hardware's buffer is full


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is sampled, and how."""

    metrics: tuple[str, ...]
    interval: int  # nanoseconds, or cycles of the system clock
    by_time: bool  # the interval is in nanoseconds
    buffer_bytes: int  # size of the hardware's buffer
    slots: int  # most samples that one decoding can take
    metric_set: str | None = None  # CUPTI's name of the metrics' set


class Sampler(Protocol):
    """One device's PM sampling; every call may raise CuptiError."""

    backend: str  # how it is used, with versions
    library: str  # version of libcupti
    chip: str  # CUPTI's name for it: GH100

    def timestamp(self) -> int:
        """Return the time of CUPTI's clock in nanoseconds."""

    def passes(self, metrics: Sequence[str], metric_set: str | None = None) -> int:
        """Return how many passes some metrics take together; raise CuptiError for a name that the chip lacks."""

    def configure(self, wanted: Wanted) -> None:
        """Set what to sample, how often, and how many samples there is space for."""

    def start(self) -> None:
        """Begin to sample."""

    def stop(self) -> None:
        """Stop; what is in the buffer can still be decoded."""

    def decode(self) -> Decoded:
        """Take the complete samples out of the hardware's buffer, and return them."""

    def close(self) -> None:
        """Release everything."""
