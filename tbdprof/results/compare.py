"""Results of comparing recordings: what differs in their facts, and by how much each figure changed.

A *side* is what is compared: one recording, or several of the same thing (repeats). The first side is the baseline. The
figures that can be compared are the numbers of the JSON report, by their paths (`figures_of`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

NAMES = ("name", "layer", "device", "phase")  # of a row of a list, where it has them
Figures = dict[str, float | None]
FASTER, SLOWER, NO_DIFFERENCE, CANNOT_TELL = "faster", "slower", "no difference", "cannot tell"
FINE, BROKEN = "fine", "broken"  # outcomes of a limit; the third one is CANNOT_TELL
EXACT = "exact"  # a count, the same in each step: one recording says all
WITHIN = "within a run"  # one recording a side: the interval covers the variation within each
EVENED = "within a run, and the share of the cores that other processes left"  # the same, where they took a notable one
BETWEEN = "between runs"  # the interval covers the variation between the recordings of a side
FREED = "between runs, without waits for a core"  # the figure is without them, too
POOLED = (BETWEEN, FREED)


@dataclass(frozen=True, slots=True)
class Change:
    """A figure of the baseline and of another side. None: not measured, or not there.

    Of several recordings the figure is their geometric mean, or the mean where one of them is not above 0. `interval`
    is the 95 % interval of `ratio`, `change_interval` that of the difference in the figure's unit, and
    `value_interval` that of the other side's own value.
    """

    name: str | None  # of a layer: "" for the model itself, None for what is in no layer
    path: str  # in the JSON report, or the short name of what has none there
    unit: str  # "s", "B", "share", "samples/s", ...; "" for a plain number
    baseline: float | None
    other: float | None
    ratio: float | None = None
    interval: tuple[float, float] | None = None
    change_interval: tuple[float, float] | None = None
    value_interval: tuple[float, float] | None = None
    basis: str | None = None  # EXACT, WITHIN, EVENED, BETWEEN or FREED; None: there is no interval
    reason: str = ""  # why a figure or its interval is None
    phase: str = ""  # of a kernel

    @property
    def change(self) -> float:
        """Return other minus baseline, in the figure's unit; what is not there counts as 0."""
        return (self.other or 0.0) - (self.baseline or 0.0)

    @property
    def differs(self) -> bool | None:
        """Return whether the interval of the difference is free of 0; None: there is no interval."""
        ends = self.change_interval
        return None if ends is None else not ends[0] <= 0 <= ends[1]


@dataclass(frozen=True, slots=True)
class Side:
    """What is compared: the recordings of one thing, by the names they were given."""

    label: str  # A, B, C ...
    names: tuple[str, ...]
    facts: Mapping[str, str]
    remarks: tuple[str, ...]  # what makes its figures less sure: drift, other processes, an early end


@dataclass(frozen=True, slots=True)
class Pair:
    """A side beside the baseline. Lists of kernels, layers and operations have the longest change first, per step."""

    side: int  # its place among the sides
    verdict: str  # on throughput: FASTER, SLOWER, NO_DIFFERENCE or CANNOT_TELL
    reason: str  # why one cannot tell
    throughput: Change
    figures: tuple[Change, ...]
    phases: tuple[Change, ...]
    categories: tuple[Change, ...]
    roles: tuple[Change, ...]
    kernels: tuple[Change, ...]
    layers: tuple[Change, ...]
    operations: tuple[Change, ...]
    same_names: bool  # kernels and layers have comparable names: of one framework, on one kind of device
    not_alike: tuple[str, ...] = ()  # facts of the setting that differ: limits on a change are then not judged
    unsteady: tuple[str, ...] = ()  # recordings that drifted or never settled


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit on a figure, as it was typed: `throughput < -5%`."""

    text: str
    figure: str
    operator: str  # "<", "<=", ">" or ">="
    number: float
    unit: str
    is_change: bool  # it has a sign: relative to the baseline


@dataclass(frozen=True, slots=True)
class Judged:
    """Whether a limit holds for a side."""

    limit: Limit
    side: int
    outcome: str  # FINE, BROKEN or CANNOT_TELL
    change: Change
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Several sides beside the first one, and the limits that were asked for."""

    sides: tuple[Side, ...]
    shared: Mapping[str, str]  # facts that are the same in all sides
    differences: Mapping[str, tuple[str, ...]]  # facts that differ, one text for each side
    pairs: tuple[Pair, ...]
    judged: tuple[Judged, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class PointComparison:
    """A point that all of several sweeps have a recording of."""

    name: str
    comparison: Comparison


@dataclass(frozen=True, slots=True)
class SweepComparison:
    """Several sweeps beside the first one, point by point."""

    names: tuple[str, ...]  # of the sweeps' folders
    points: tuple[PointComparison, ...]
    left_out: tuple[str, ...]  # points that a sweep has no recording of


def figures_of(document: Mapping[str, Any], *, rows: bool = True) -> Figures:
    """Return all numbers of a JSON report by path: `memory.at_peak.weights`, `kernels[aten::mm forward].seconds`.

    A row of a list goes by its name, layer, device and phase, or by its number from 0; without `rows` lists are left
    out. A figure that was not measured is None; a null may also stand for a text, so that a path with None is not sure
    to be a figure.
    """
    return dict(_found("", document, rows=rows))


def _found(path: str, value: Any, *, rows: bool) -> Iterator[tuple[str, float | None]]:
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield from _found(f"{path}.{name}" if path else str(name), each, rows=rows)
    elif isinstance(value, list | tuple):
        for place, each in enumerate(value) if rows else ():
            yield from _found(f"{path}[{_row_name(place, each)}]", each, rows=rows)
    elif value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        yield path, value


def _row_name(place: int, row: Any) -> str:
    if not isinstance(row, Mapping):
        return str(place)
    return " ".join(str(row[name] or "") for name in NAMES if name in row) if {*NAMES} & {*row} else str(place)
