"""Results of a sweep: the figures of its points, and where throughput stops growing with the batch."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from tbdprof.errors import UnavailableError
from tbdprof.results.kernels import LowUtilization
from tbdprof.results.time import Rate

if TYPE_CHECKING:
    import pandas as pd


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
    disturbed: bool | None = None  # whether other processes took a notable part of the cores; None: not known


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

    @property
    def rows(self) -> "SweepRows":
        """Return the points as plain rows, in the same order."""
        return SweepRows(map(_row, self.points))


@dataclass(frozen=True, slots=True)
class SweepRow:
    """One point of a sweep, flat; None: not measured, or the point did not finish. Times are in seconds."""

    name: str
    settings: Mapping[str, str | int]
    end: str  # finished, out of memory, failed
    reason: str | None
    seconds: float | None  # from the start of its process to its end
    machine: str | None
    per_s: float | None = None  # throughput, in `unit`
    per_s_low: float | None = None  # the ends of its 95 % interval
    per_s_high: float | None = None
    unit: str | None = None
    step_seconds: float | None = None
    peak_bytes: int | None = None
    category_bytes: Mapping[str, int] | None = None  # at the peak
    busy: float | None = None  # these four are fractions
    fp32: float | None = None
    cpu: float | None = None
    exposed: float | None = None
    drifted: bool | None = None
    disturbed: bool | None = None
    complete: bool | None = None
    model: str | None = None
    framework: str | None = None  # and its version
    device: str | None = None  # its name
    precision: str | None = None
    threads: int | None = None


class SweepRows(list[SweepRow]):
    """The rows of a sweep."""

    def to_pandas(self) -> "pd.DataFrame":
        """Return the rows as a data frame; raise UnavailableError if pandas is not installed.

        A setting is the column `settings.NAME`, and a category of memory `category_bytes.NAME`.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise UnavailableError("to_pandas needs pandas, which is not installed: pip install pandas") from error
        return pd.DataFrame([_flat(row) for row in self])


def _row(point: SweepPoint) -> SweepRow:
    row = SweepRow(point.name, point.settings, point.end.value, point.reason, point.seconds, point.machine)
    found = point.figures
    if found is None:
        return row
    low, high = (None, None) if found.rate is None or found.rate.interval is None else found.rate.interval
    return replace(
        row,
        per_s=None if found.rate is None else found.rate.per_s,
        per_s_low=low,
        per_s_high=high,
        **{name: getattr(found, name) for name in _SAME},
    )


_SAME = (
    *("unit", "step_seconds", "peak_bytes", "category_bytes", "busy", "fp32", "cpu", "exposed", "drifted"),
    *("disturbed", "complete"),
    *("model", "framework", "device", "precision", "threads"),
)


def _flat(row: SweepRow) -> dict[str, Any]:
    """Return a row with a column for each setting and each category of memory."""
    columns: dict[str, Any] = {}
    for name, value in asdict(row).items():
        if name in ("settings", "category_bytes"):
            columns |= {f"{name}.{inner}": each for inner, each in (value or {}).items()}
        else:
            columns[name] = value
    return columns
