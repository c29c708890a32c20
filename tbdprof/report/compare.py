"""The report of a comparison: what differs, whether throughput does, and each figure beside that of the baseline."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from tbdprof.report.json_text import json_text
from tbdprof.report.plain import plain
from tbdprof.report.terminal_parts.change_tables import change_text, changes, facts, interval_text, longest, value_text
from tbdprof.report.terminal_parts.tables import printed, sheet, title_of
from tbdprof.results.compare import (
    BROKEN,
    CANNOT_TELL,
    EVENED,
    FINE,
    FREED,
    NO_DIFFERENCE,
    SLOWER,
    WITHIN,
    Change,
    Comparison,
    Judged,
    Pair,
)
from tbdprof.results.memory import CATEGORIES
from tbdprof.results.time import WIDE

SCHEMA = 1
ROWS, FEW_ROWS = 10, 5  # kernels and layers, of two sides and of more
MOST_NAMED = 3
REPEATS = "give repeats, as a1.tbd,a2.tbd,a3.tbd"
NOTES = {
    EVENED: "one recording a side: the interval covers what varies within each and the cores that others took, "
    f"not all that varies between runs; {REPEATS}",
    FREED: "other processes took cores: throughput and step time are without the time in which threads waited for one",
    WITHIN: f"one recording a side: the interval covers what varies within each, not between runs; {REPEATS}",
}
NO_DIFFERENCE_SHOWS = "no difference between {} and {} shows: "
UNSURE = "no difference between {} and {} shows, but the interval is too wide to say that there is none: "
OTHER_NAMES = "kernels and layers have other names in another framework or on another kind of device"
COLORS = {BROKEN: "red", CANNOT_TELL: "yellow", FINE: "green"}
RENAMED = {
    "interval": "ratio_ci95",
    "change_interval": "change_ci95",
    "value_interval": "other_ci95",
    "basis": "interval_covers",
}
LISTS = ("figures", "phases", "categories", "roles", "kernels", "layers", "operations")


def render(comparison: Comparison, *, width: int | None = None, color: bool = False) -> str:
    """Return the report as text for a terminal."""
    comparison = plain(comparison)
    parts = [sheet((side.label, Text(_listed(side.names))) for side in comparison.sides), _facts(comparison)]
    if comparison.judged:
        parts.append(_limits(comparison))
    parts.append(_answers(comparison))
    for pair in comparison.pairs:
        parts += _pair(comparison, pair)
    spaced = [piece for part in parts for piece in (Text(), part)]
    return printed(Group(*spaced[1:]), width=width, color=color)


def render_json(comparison: Comparison) -> str:
    """Return the report as one JSON object; docs/compare.md describes it."""
    return json_text({"schema": SCHEMA, **document(comparison)})


def document(comparison: Comparison) -> dict[str, Any]:
    """Return the report as plain data."""
    labels = [side.label for side in comparison.sides]
    return {
        "sides": [
            {"label": side.label, "files": side.names, "facts": side.facts, "remarks": side.remarks}
            for side in comparison.sides
        ],
        "shared": comparison.shared,
        "differences": comparison.differences,
        "comparisons": [_pair_json(labels, pair) for pair in comparison.pairs],
        "limits": [_judged_json(labels, each) for each in comparison.judged],
    }


def _pair_json(labels: Sequence[str], pair: Pair) -> dict[str, Any]:
    return {
        "baseline": labels[0],
        "other": labels[pair.side],
        "verdict": pair.verdict,
        "reason": pair.reason or None,
        "throughput": change_json(pair.throughput),
        **{name: [change_json(each) for each in getattr(pair, name)] for name in LISTS},
    }


def change_json(change: Change) -> dict[str, Any]:
    """Return how a figure changed as plain data."""
    found = {RENAMED.get(name, name): value for name, value in asdict(change).items()}
    return {**found, "change": change.change, "phase": change.phase or None, "reason": change.reason or None}


def _judged_json(labels: Sequence[str], judged: Judged) -> dict[str, Any]:
    return {
        "limit": judged.limit.text,
        "other": labels[judged.side],
        "outcome": judged.outcome,
        "reason": judged.reason or None,
        "figure": change_json(judged.change),
    }


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def _facts(comparison: Comparison) -> RenderableType:
    alike = Text(" · ".join(_alike(comparison.shared)))
    remarks = [Text(remark, style="yellow") for side in comparison.sides for remark in side.remarks]
    if not comparison.differences:
        return Group(Text("The facts of the runs are the same", style="bold"), alike, *remarks)
    table = facts([side.label for side in comparison.sides], comparison.differences)
    return Group(table, *([Text.assemble(("the same  ", "bold"), alike)] if alike else []), *remarks)


def _alike(shared: Mapping[str, str]) -> Iterator[str]:
    """Yield the facts that sides share and that a reader looks for first."""
    for names in (("model",), ("framework", "framework version"), ("device", "device name"), ("precision",)):
        if found := " ".join(shared[name] for name in names if name in shared):
            yield found
    for name in ("threads", "batch"):
        if name in shared:
            yield f"{name} {shared[name]}"


def _limits(comparison: Comparison) -> RenderableType:
    several = len(comparison.pairs) > 1
    rows = [
        (
            each.outcome,
            Text(judged_text(each, comparison.sides[each.side].label if several else ""), style=COLORS[each.outcome]),
        )
        for each in comparison.judged
    ]
    return Group(Text("Limits", style="bold"), sheet(rows))


def judged_text(judged: Judged, label: str) -> str:
    """Return a limit, the figure it is on, and why it was not judged; `label` names the side."""
    change = judged.change
    head = f"{f'{label}: ' if label else ''}{judged.limit.text}"
    if change.other is None or change.baseline is None:
        return f"{head}: {judged.reason}"
    values = f"{value_text(change.other, change.unit)} after {value_text(change.baseline, change.unit)}"
    by = " ".join(text for text in (change_text(change), interval_text(change)) if text)
    return f"{head}: {values}, {by}{f'; {judged.reason}' if judged.reason else ''}"


def _answers(comparison: Comparison) -> RenderableType:
    lines = [answer(comparison, pair) for pair in comparison.pairs]
    bases = {pair.throughput.basis for pair in comparison.pairs}
    notes = [text for basis, text in NOTES.items() if basis in bases]
    return Group(*lines, *(Text(note, style="dim") for note in notes[:1]))


def answer(comparison: Comparison, pair: Pair) -> Text:
    """Return whether the throughput of a side differs from that of the baseline, in one sentence."""
    change = pair.throughput
    one, two = comparison.sides[0].label, comparison.sides[pair.side].label
    seen = "" if change.ratio is None else f"{change.ratio:.3f} times the throughput of {one}{_ends(change)}"
    if pair.verdict == CANNOT_TELL:
        said = f"cannot tell whether {two} is faster or slower than {one}: {pair.reason}"
        return Text(f"{said}; seen: {seen}" if seen else said, style="bold yellow")
    if pair.verdict == NO_DIFFERENCE:
        wide = change.interval is not None and change.interval[1] > WIDE * change.interval[0]
        said = UNSURE if wide else NO_DIFFERENCE_SHOWS
        return Text(f"{said.format(two, one)}{seen}", style="bold")
    style = "bold red" if pair.verdict == SLOWER else "bold green"
    return Text(f"{two} is {pair.verdict} than {one}: {seen}", style=style)


def _ends(change: Change) -> str:
    return "" if change.interval is None else f" [{change.interval[0]:.3f}, {change.interval[1]:.3f}]"


def _pair(comparison: Comparison, pair: Pair) -> Iterator[RenderableType]:
    labels = comparison.sides[0].label, comparison.sides[pair.side].label
    most = ROWS if len(comparison.pairs) == 1 else FEW_ROWS
    yield changes(f"{labels[1]} against {labels[0]}", labels, (pair.throughput, *pair.figures))
    if pair.phases:
        yield changes("Time of a step in the kernels windows, by phase", labels, _there(pair.phases))
    if any(each.change for each in (*pair.categories, *pair.roles)):
        yield changes("Memory at the peak, by category and role", labels, _there(_with_roles(pair)))
    elif pair.categories:
        yield title_of("Memory at the peak: the same in every category and role")
    if pair.operations and not pair.same_names:
        yield Group(
            longest("Operations by the change of their time", labels, pair.operations, most),
            Text(OTHER_NAMES, style="dim"),
        )
    if pair.kernels and pair.same_names:
        yield longest("Kernels by the change of their time", labels, pair.kernels, most)
    if pair.layers and pair.same_names:
        yield longest("Layers by the change of their time", labels, pair.layers, most, layers=True)


def _there(rows: Iterable[Change]) -> list[Change]:
    return [each for each in rows if each.baseline or each.other]


def _with_roles(pair: Pair) -> Iterator[Change]:
    """Yield each category, and below it its roles if there are several."""
    sizes = {each.name: each for each in pair.roles}
    for category in pair.categories:
        yield category
        roles = _there(
            [sizes[role.name.lower()] for role in CATEGORIES[category.name or ""] if role.name.lower() in sizes]
        )
        if len(roles) > 1:
            yield from (replace(each, name=f"  {each.name}") for each in roles)
