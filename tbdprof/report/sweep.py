"""The report of a sweep: a row for each point, and where throughput stops growing with the batch."""

from collections.abc import Iterator
from dataclasses import asdict

from rich.console import Group
from rich.text import Text

from tbdprof.facts.units import bytes_text, percent_text, seconds_text
from tbdprof.report.json_text import json_text
from tbdprof.report.plain import plain
from tbdprof.report.terminal_parts.tables import Column, filled, printed, utilization_text
from tbdprof.results.sweep import End, Growth, Knee, Sweep, SweepPoint, settings_text

SCHEMA = 1
_FIGURES = (
    Column("throughput"),
    Column("± 95 %"),
    Column("step"),
    Column("peak memory"),
    Column("busy"),
    Column("FP32"),
    Column("ended", "text"),
)


def render(sweep: Sweep, *, width: int | None = None, color: bool = False) -> str:
    """Return the report as text."""
    sweep = plain(sweep)
    shown = [name for name in sweep.swept if len({point.settings.get(name) for point in sweep.points}) > 1]
    columns = [*(Column(name.replace("_", " "), "name") for name in shown), *_FIGURES, Column("machine", "text")]
    several = len({point.machine for point in sweep.points if point.machine is not None}) > 1
    rows = [
        [*(str(point.settings.get(name, "")) for name in shown), *_row(point), (point.machine or "") * several]
        for point in sweep.points
    ]
    lines = [Text(line) for line in sentences(sweep)]
    return printed(Group(filled(sweep.title, columns, rows), Text(), *lines), width=width, color=color)


def render_json(sweep: Sweep) -> str:
    """Return the report as one JSON object; docs/json.md describes it."""
    return json_text(document(sweep))


def document(sweep: Sweep) -> dict[str, object]:
    """Return the report as plain data; the kernels of each point are in the point's own report."""
    fields = asdict(sweep)
    for point in fields["points"]:
        if point["figures"] is not None:
            del point["figures"]["low_utilization"]
    return {"schema": SCHEMA, **fields}


def _row(point: SweepPoint) -> Iterator[str]:
    found = point.figures
    if found is None:
        yield from ("",) * (len(_FIGURES) - 1)
    else:
        rate = found.rate
        yield "" if rate is None else f"{rate.per_s:.4g} {found.unit}/s"
        ends = None if rate is None else rate.interval
        yield "" if rate is None or ends is None else percent_text((ends[1] - ends[0]) / 2 / rate.per_s)
        yield "" if found.step_seconds is None else seconds_text(found.step_seconds * 1e9)
        yield "" if found.peak_bytes is None else bytes_text(found.peak_bytes)
        yield "" if found.busy is None else percent_text(found.busy)
        yield utilization_text(found.fp32)
    yield _ended(point)


def _ended(point: SweepPoint) -> str:
    if point.end is not End.FINISHED:
        return str(point.end.value)
    if point.figures is not None and point.figures.drifted:
        return "drifted"
    return ""


def sentences(sweep: Sweep) -> Iterator[str]:
    """Yield what is said below the table: the knees, the points that did not finish, and those to come."""
    for each in sweep.knees:
        label = ", ".join(settings_text(each.settings))
        said = f"no knee: {each.reason}" if each.knee is None else _said(each.knee)
        yield f"{label}: {said}" if label else said
    for point in sweep.points:
        if point.end is not End.FINISHED:
            yield f"{point.name}: {point.end.value}{'' if point.reason is None else f' ({point.reason})'}"
    crowded = [point.name for point in sweep.points if point.figures is not None and point.figures.disturbed]
    if crowded:
        others = f" and {len(crowded) - 1} more" if len(crowded) > 1 else ""
        yield f"other processes took cores during {crowded[0]}{others}: speed and times may differ without them"
    if sweep.to_come:
        yield f"{sweep.to_come} {'point has' if sweep.to_come == 1 else 'points have'} not ended"


def _said(knee: Knee) -> str:
    best = f"{knee.best_rate:.4g} {knee.unit}/s at {knee.best}"
    share = percent_text(knee.share).replace(".0", "")
    if knee.growth is Growth.GROWING:
        end = "the largest that fits into memory" if knee.ends_at_memory else "the largest that was run"
        return f"not saturated: throughput still grows at batch {knee.largest}, {end} ({best})"
    if knee.growth is Growth.UNCLEAR:
        unclear = f"cannot tell at this noise whether throughput is saturated at batch {knee.largest}"
        return f"{unclear}; the knee is {knee.low} or more"
    if knee.low == knee.high:
        return f"the knee is batch {knee.low}: the smallest within {share} of the best ({best})"
    if knee.measured.index(knee.high) - knee.measured.index(knee.low) == 1:
        return f"the knee is batch {knee.low} or {knee.high}: the smallest within {share} of the best ({best})"
    return f"saturated, but cannot tell the knee at this noise: batch {knee.low} to {knee.high} (best: {best})"
