"""The page of a comparison: what differs, whether throughput does, and each figure beside that of the baseline."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tbdprof.report.compare import COLORS, answer, judged_text
from tbdprof.report.page.figures import Figures
from tbdprof.report.page.look import BLUE, ORANGE, Spec, axis, chart, legend
from tbdprof.report.page.render import fill
from tbdprof.report.page.tables import Cell, Column, Table, figure, number, table, word
from tbdprof.report.page.texts import in_chart, readable
from tbdprof.report.page.words import DEFINITIONS
from tbdprof.report.terminal_parts.change_tables import change_text, interval_text, value_text
from tbdprof.report.terminal_parts.tables import layer_text, short
from tbdprof.results.compare import Change, Comparison, Pair

MOST_BARS = 20
COLORS_OF_SIDES = (BLUE, ORANGE)
# The lists of a pair: their names in the JSON report, a title, and whether names are those of layers.
LISTS = (
    ("figures", "Figures", False),
    ("phases", "Time of a step by phase", False),
    ("categories", "Memory at the peak by category", False),
    ("roles", "Memory at the peak by role", False),
    ("kernels", "Kernels by the change of their time", False),
    ("layers", "Layers by the change of their time", True),
    ("operations", "Operations by the change of their time", False),
)
DRAWN = ("phases", "categories", "kernels", "layers")


def render(comparison: Comparison, *, document: Mapping[str, Any], terminal: str) -> str:
    """Return the page; `document` is the comparison as JSON, and `terminal` as in the terminal.

    Raise UnavailableError where Jinja2 or Plotly is not installed.
    """
    shown, figures = readable(comparison), Figures(readable(document))
    pairs = [_pair(shown, place, figures) for place in range(len(shown.pairs))]
    charts = {name: spec for pair in pairs for name, spec in pair["charts"].items()}
    several = len(shown.pairs) > 1
    limits = [
        (each.outcome, COLORS[each.outcome], judged_text(each, shown.sides[each.side].label if several else ""))
        for each in shown.judged
    ]
    return fill(
        "comparison.html",
        {"charts": charts, "memory": None},
        title=f"Comparison of {len(shown.sides)} sides",
        sides=shown.sides,
        limits=limits,
        differences=_differences(shown),
        shared=shown.shared,
        pairs=pairs,
        charts=charts,
        terminal=terminal,
        words=DEFINITIONS,
        readable_name=lambda text: text.replace("_", " "),
    )


def _differences(comparison: Comparison) -> Table:
    columns = (Column("fact"), *(Column(side.label, wraps=True) for side in comparison.sides))
    rows = [(word(name), *map(word, texts)) for name, texts in comparison.differences.items()]
    return table("What differs", columns, rows, total=len(rows))


def _pair(comparison: Comparison, place: int, figures: Figures) -> dict[str, Any]:
    """Return what the page shows of a side beside the baseline."""
    pair = comparison.pairs[place]
    labels = comparison.sides[0].label, comparison.sides[pair.side].label
    said = answer(comparison, pair)
    tables, charts = [], {}
    for name, title, of_layers in LISTS:
        changes: Sequence[Change] = getattr(pair, name)
        if not changes or not _can_be_compared(pair, name):
            continue
        path = f"/comparisons/{place}/{name}"
        chart_name = f"{name}-{place}"
        if name in DRAWN and any(each.baseline or each.other for each in changes):
            charts[chart_name] = _bars(changes, labels, of_layers=of_layers)
        tables.append((chart_name, _table(figures, title, path, changes, labels, of_layers=of_layers)))
    throughput = [*_row(figures, f"/comparisons/{place}/throughput", pair.throughput, "throughput")]
    whole = table("Throughput", _columns(labels), [throughput], total=1)
    return {
        "labels": labels,
        "sentence": said.plain,
        "style": str(said.style).removeprefix("bold").strip(),
        "throughput": whole,
        "tables": tables,
        "charts": charts,
    }


def _can_be_compared(pair: Pair, name: str) -> bool:
    return pair.same_names or name not in ("kernels", "layers")


def _columns(labels: tuple[str, str]) -> tuple[Column, ...]:
    return (
        *(Column("figure"), Column(labels[0], True), Column(labels[1], True)),
        *(Column("change", True), Column("95 % interval"), Column("phase", False, "Phase")),
    )


def _table(
    figures: Figures, title: str, path: str, changes: Sequence[Change], labels: tuple[str, str], *, of_layers: bool
) -> Table:
    rows = (
        [*_row(figures, f"{path}/{place}", each, _name(each, of_layers=of_layers))]
        for place, each in enumerate(changes)
    )
    return table(title, _columns(labels), rows, total=len(changes), can_filter=True)


def _row(figures: Figures, path: str, change: Change, name: str) -> Iterator[Cell]:
    yield word(name)
    yield figure(figures, f"{path}/baseline", text=value_text(change.baseline, change.unit))
    yield figure(figures, f"{path}/other", text=value_text(change.other, change.unit))
    yield number(change.ratio if change.ratio is not None else change.change, change_text(change))
    yield word(interval_text(change))
    yield word(change.phase)


def _name(change: Change, *, of_layers: bool) -> str:
    return layer_text(change.name) if of_layers else short((change.name or "").replace("_", " "))


def _bars(changes: Sequence[Change], labels: tuple[str, str], *, of_layers: bool) -> Spec:
    """Return the chart of both sides, the longest change first."""
    kept = [each for each in changes if each.baseline or each.other][:MOST_BARS][::-1]
    names = [in_chart(_name(each, of_layers=of_layers), 40) for each in kept]
    scale, unit = (1e3, "ms per step") if kept[0].unit == "s" else (1 / 2**20, "MiB")
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": label,
            "y": list(range(len(kept))),
            "x": [(value or 0.0) * scale for value in values],
            "text": [value_text(value, each.unit) for value, each in zip(values, kept, strict=True)],
            "textposition": "none",
            "customdata": names,
            "marker": {"color": color},
            "hovertemplate": "%{customdata}<br>%{fullData.name}: %{text}<extra></extra>",
        }
        for label, color, values in zip(
            labels, COLORS_OF_SIDES, ([each.baseline for each in kept], [each.other for each in kept]), strict=True
        )
    ]
    return chart(
        traces[::-1],
        height=110 + 30 * len(kept),
        barmode="group",
        legend=legend() | {"traceorder": "reversed"},
        margin={"l": 8, "r": 16, "t": 44, "b": 44},
        xaxis=axis(unit),
        yaxis={
            "tickvals": list(range(len(kept))),
            "ticktext": names,
            "automargin": True,
            "fixedrange": True,
        },
    )
