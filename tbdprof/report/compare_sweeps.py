"""The report of several sweeps beside the first one: a row for each point, and the limits of all points."""

from collections.abc import Iterator

from rich.console import Group
from rich.text import Text

from tbdprof.report.compare import COLORS, document, judged_text
from tbdprof.report.json_text import json_text
from tbdprof.report.plain import plain
from tbdprof.report.terminal_parts.change_tables import change_text, interval_text, value_text
from tbdprof.report.terminal_parts.tables import Column, filled, printed, sheet
from tbdprof.results.compare import FINE, Change, Pair, SweepComparison

SCHEMA = 1
PEAK_MEMORY = "peak memory"
TITLE = "Throughput ({}) and peak memory of each point"
LEFT_OUT = "not compared, because a sweep has no recording of it: {}"


def render(found: SweepComparison, *, width: int | None = None, color: bool = False) -> str:
    """Return the report as text for a terminal."""
    found = plain(found)
    labels = [side.label for side in found.points[0].comparison.sides]
    columns = [
        Column("point", "name"),
        Column("", "word"),
        Column(labels[0]),
        Column("other" if len(labels) > 2 else labels[1]),
        Column("change"),
        Column("95 % interval"),
        Column("memory"),
        Column("", "word"),
    ]
    parts = [
        sheet((label, Text(name)) for label, name in zip(labels, found.names, strict=True)),
        Text(),
        filled(
            f"Throughput ({' or '.join(_units(found))}) and peak memory of each point", columns, _rows(found, labels)
        ),
        *_limits(found),
        *(Text(LEFT_OUT.format(name), style="dim") for name in found.left_out),
    ]
    return printed(Group(*parts), width=width, color=color)


def render_json(found: SweepComparison) -> str:
    """Return the report as one JSON object; docs/compare.md describes it."""
    points = [{"point": each.name, **document(each.comparison)} for each in found.points]
    return json_text({"schema": SCHEMA, "sweeps": found.names, "points": points, "left_out": found.left_out})


def _rows(found: SweepComparison, labels: list[str]) -> Iterator[tuple[str, ...]]:
    for point in found.points:
        for pair in point.comparison.pairs:
            rate, memory = pair.throughput, _peak(pair)
            yield (
                point.name,
                labels[pair.side] if len(labels) > 2 else "",
                value_text(rate.baseline, ""),
                value_text(rate.other, ""),
                change_text(rate),
                interval_text(rate),
                "" if memory is None else change_text(memory),
                pair.verdict,
            )


def _units(found: SweepComparison) -> list[str]:
    return list(dict.fromkeys(pair.throughput.unit for point in found.points for pair in point.comparison.pairs))


def _peak(pair: Pair) -> Change | None:
    return next((each for each in pair.figures if each.name == PEAK_MEMORY), None)


def _limits(found: SweepComparison) -> Iterator[Group | Text]:
    """Yield the limits that do not hold, or cannot be judged, and how many hold."""
    judged = [(point, each) for point in found.points for each in point.comparison.judged]
    if not judged:
        return
    rows = [
        (each.outcome, Text(judged_text(each, point.name), style=COLORS[each.outcome]))
        for point, each in judged
        if each.outcome != FINE
    ]
    fine = len(judged) - len(rows)
    yield Group(Text(), Text("Limits", style="bold"), sheet(rows), Text(f"{fine} of {len(judged)} hold", style="dim"))
