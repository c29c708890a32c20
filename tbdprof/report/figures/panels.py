"""What each figure shows, as plain data: a panel for each program, a series for each of its variants.

The figures have the numbers and the arrangement of the TBD paper's: 4 is throughput, 5 how busy the device is, 6 FP32
utilization, each by batch. Figure 7 compares two devices, and 8 shows memory by category.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tbdprof.results.memory import CATEGORIES
from tbdprof.results.sweep import End, PointFigures, Sweep, SweepPoint, settings_text

_PANEL = ("model",)  # settings that make a panel of their own
_UNITS_OF_BYTES = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))


@dataclass(frozen=True, slots=True)
class Mark:
    """A point of a series; `low` and `high` are its 95 % interval, None if it has none."""

    batch: int
    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Series:
    """One variant of a program: the batches with a figure, those that ran out of memory, and those that lack it."""

    label: str
    marks: tuple[Mark, ...]
    full: tuple[int, ...] = ()
    lacking: tuple[int, ...] = ()  # failed, or the figure was not measured


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes."""

    title: str
    unit: str
    series: tuple[Series, ...]


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: its parts from the bottom, or none if there is only a reason."""

    label: str
    parts: Mapping[str, float]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Bars:
    """A panel of bars."""

    title: str
    unit: str
    bars: tuple[Bar, ...]
    names: tuple[str, ...] = field(default=())  # of the parts, from the bottom


def throughput(sweep: Sweep) -> tuple[Panel, ...]:
    """Return figure 4: throughput by batch."""

    def mark(size: int, found: PointFigures) -> Mark | None:
        if found.rate is None:
            return None
        low, high = found.rate.interval or (None, None)
        return Mark(size, found.rate.per_s, low, high)

    return _panels(sweep, mark, lambda found: f"{found.unit}/s")


def busy(sweep: Sweep) -> tuple[Panel, ...]:
    """Return figure 5: the share of time in which the device is busy, in percent, by batch."""
    return _panels(sweep, lambda size, found: _percent(size, found.busy), lambda _: "busy (%)")


def fp32(sweep: Sweep) -> tuple[Panel, ...]:
    """Return figure 6: FP32 utilization in percent, by batch."""
    return _panels(sweep, lambda size, found: _percent(size, found.fp32), lambda _: "FP32 utilization (%)")


def memory(sweep: Sweep) -> tuple[Bars, ...]:
    """Return figure 8: memory at the peak by category, a bar for each batch."""
    sizes = [size for point in sweep.points for size in _categories(point).values()]
    unit, scale = next((each for each in _UNITS_OF_BYTES if max(sizes, default=0) >= each[1]), _UNITS_OF_BYTES[-1])
    panels = []
    for title, points in _grouped(sweep, _PANEL).items():
        bars = [
            _memory_bar(point, _with_batch(label, point.settings[sweep.batch]), scale)
            for label, group in _variants(points, sweep).items()
            for point in group
        ]
        panels.append(Bars(title or sweep.title, f"memory at the peak ({unit})", tuple(bars), tuple(CATEGORIES)))
    return tuple(panels)


def devices(one: Sweep, other: Sweep, names: tuple[str, str]) -> tuple[Bars, ...]:
    """Return figure 7: two devices side by side, at the largest batch that both ran.

    Throughput is over that of the first device. Programs that only one of them ran are left out. Where both sweeps ran
    on devices of one name, the sweeps' own `names` are added to it.
    """
    first, second = _by_program(one), _by_program(other)
    pairs: dict[str, tuple[PointFigures, PointFigures]] = {}
    for label, points in first.items():
        common = [size for size in points if size in second.get(label, {})]
        if common:
            size = max(common)
            pairs[f"{label} ({size})"] = (points[size], second[label][size])
    shown = _told_apart([*pairs.values()], names)
    order = tuple(
        dict.fromkeys(shown[side, figures.device] for pair in pairs.values() for side, figures in enumerate(pair))
    )
    return tuple(Bars(figure, _UNITS[figure], tuple(_device_bars(pairs, shown, figure)), order) for figure in _UNITS)


_UNITS = {"throughput": "throughput (×)", "busy": "busy (%)", "FP32 utilization": "FP32 utilization (%)"}


def _told_apart(
    pairs: Sequence[tuple[PointFigures, PointFigures]], names: tuple[str, str]
) -> dict[tuple[int, str], str]:
    """Return what stands for a device in a figure, by the number of its sweep and its name."""
    if names[0] == names[1]:
        names = (f"{names[0]}, first", f"{names[1]}, second")
    first, second = ({pair[side].device for pair in pairs} for side in (0, 1))
    return {
        (side, device): f"{device} ({names[side]})" if device in first & second else device
        for side, found in enumerate((first, second))
        for device in found
    }


def _device_bars(
    pairs: Mapping[str, tuple[PointFigures, PointFigures]], shown: Mapping[tuple[int, str], str], figure: str
) -> Iterable[Bar]:
    for label, pair in pairs.items():
        values = [_value(each, figure) for each in pair]
        base = values[0] if figure == "throughput" else 0.01
        if base is None or None in values:
            yield Bar(label, {}, "not measured")
        else:
            parts = {shown[side, each.device]: (values[side] or 0.0) / base for side, each in enumerate(pair)}
            yield Bar(label, parts)


def _value(found: PointFigures, figure: str) -> float | None:
    if figure == "throughput":
        return None if found.rate is None else found.rate.per_s
    return found.busy if figure == "busy" else found.fp32


def _by_program(sweep: Sweep) -> dict[str, dict[int, PointFigures]]:
    found: dict[str, dict[int, PointFigures]] = {}
    for point in sweep.points:
        if point.figures is not None:
            label = _label(point, sweep, {sweep.batch}, every=True) or sweep.title
            found.setdefault(label, {})[_batch(point, sweep.batch)] = point.figures
    return found


def _with_batch(label: str, size: str | int) -> str:
    return f"{label} ({size})" if label else f"batch {size}"


def _memory_bar(point: SweepPoint, label: str, scale: int) -> Bar:
    if point.figures is None:
        return Bar(label, {}, point.end.value)
    parts = {name: size / scale for name, size in _categories(point).items()}
    return Bar(label, parts, "" if parts else "not measured")


def _categories(point: SweepPoint) -> Mapping[str, int]:
    return (None if point.figures is None else point.figures.category_bytes) or {}


def _panels(
    sweep: Sweep,
    mark: Callable[[int, PointFigures], Mark | None],
    unit: Callable[[PointFigures], str],
) -> tuple[Panel, ...]:
    panels = []
    for title, points in _grouped(sweep, _PANEL).items():
        series = tuple(_series(label, group, sweep.batch, mark) for label, group in _variants(points, sweep).items())
        units = dict.fromkeys(unit(point.figures) for point in points if point.figures is not None)
        panels.append(Panel(title or sweep.title, " or ".join(units), series))
    return tuple(panels)


def _series(
    label: str, points: Sequence[SweepPoint], batch: str, mark: Callable[[int, PointFigures], Mark | None]
) -> Series:
    marks, full, lacking = list[Mark](), list[int](), list[int]()
    for point in points:
        size = _batch(point, batch)
        found = None if point.figures is None else mark(size, point.figures)
        if found is not None:
            marks.append(found)
        else:
            (full if point.end == End.OUT_OF_MEMORY else lacking).append(size)
    return Series(label, tuple(marks), tuple(full), tuple(lacking))


def _grouped(sweep: Sweep, names: Sequence[str]) -> dict[str, list[SweepPoint]]:
    groups: dict[str, list[SweepPoint]] = {}
    for point in sweep.points:
        groups.setdefault(" ".join(str(point.settings.get(name, "")) for name in names), []).append(point)
    return groups


def _variants(points: Iterable[SweepPoint], sweep: Sweep) -> dict[str, list[SweepPoint]]:
    """Return the points of a panel by what else varies, each group by ascending batch."""
    groups: dict[str, list[SweepPoint]] = {}
    for point in sorted(points, key=lambda point: _batch(point, sweep.batch)):
        groups.setdefault(_label(point, sweep, {*_PANEL, sweep.batch}), []).append(point)
    return groups


def _label(point: SweepPoint, sweep: Sweep, left_out: set[str], *, every: bool = False) -> str:
    """Name the settings that vary within a sweep, or every setting, without some."""
    names = [name for name in sweep.swept if name not in left_out]
    varied = [name for name in names if every or len({each.settings.get(name) for each in sweep.points}) > 1]
    return " ".join(settings_text({name: point.settings[name] for name in varied}))


def _batch(point: SweepPoint, batch: str) -> int:
    return int(point.settings[batch])


def _percent(size: int, share: float | None) -> Mark | None:
    return None if share is None else Mark(size, 100 * share)
