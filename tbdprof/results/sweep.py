"""Results of a sweep: the figures of its points, and where throughput stops growing with the batch."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from tbdprof.results.kernels import LowUtilization
from tbdprof.results.time import Rate


class End(str, Enum):
    """How a point ended. Running out of memory is a result: the point does not fit."""

    FINISHED = "finished"
    OUT_OF_MEMORY = "out of memory"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class PointFigures:
    """The figures of one recording that sweeps compare; None: not measured."""

    rate: Rate | None
    unit: str  # of the rate, in the plural
    step_seconds: float | None
    peak_bytes: int | None
    category_bytes: Mapping[str, int] | None  # at the peak
    busy: float | None  # share of the time in which the device is busy
    fp32: float | None  # utilization, FLOPs over the peak
    drifted: bool | None
    complete: bool
    model: str
    framework: str  # and its version
    device: str  # its name
    on_gpu: bool
    precision: str | None
    threads: int | None
    low_utilization: LowUtilization | None
    cpu: float | None  # utilization of the cores by the process
    exposed: float | None  # share of a step in which communication runs alone; None: none was seen


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """One point: its settings, how it ended, and its figures if it has a recording."""

    name: str
    settings: Mapping[str, str | int]
    end: End
    reason: str | None
    seconds: float | None
    machine: str | None
    figures: PointFigures | None


def settings_text(settings: Mapping[str, str | int]) -> Iterator[str]:
    """Yield each setting as people read it: models and frameworks by their names alone."""
    for name, value in settings.items():
        yield str(value) if name in ("model", "framework") else f"{name} {value}"


class Growth(str, Enum):
    """Whether throughput still grows at the largest batch."""

    SATURATED = "saturated"
    GROWING = "growing"
    UNCLEAR = "unclear"


@dataclass(frozen=True, slots=True)
class Knee:
    """The smallest batch whose throughput is within a share of the best, among those that were measured.

    It lies from `low` to `high`, ends included, at a confidence of 95 % as far as noise within each run goes.
    """

    low: int
    high: int
    growth: Growth
    best: int  # the batch with the highest throughput
    best_rate: float
    unit: str
    largest: int  # batch
    ends_at_memory: bool  # a larger one ran out of memory
    measured: tuple[int, ...]  # batches, ascending
    share: float


@dataclass(frozen=True, slots=True)
class KneeOf:
    """The knee of the points that differ in their batch only, or why there is none."""

    settings: Mapping[str, str | int]
    knee: Knee | None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Sweep:
    """All points of a sweep, in the order of its plan, and the knees."""

    title: str
    swept: tuple[str, ...]
    batch: str  # the swept setting that is the batch size; "": none is
    points: tuple[SweepPoint, ...]
    knees: tuple[KneeOf, ...]
    to_come: int | None  # points that have not ended; None: not known
