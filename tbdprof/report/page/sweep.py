"""The page of a sweep, or of two whose devices are compared: the paper's figures, the knees, and every point."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tbdprof.facts.units import bytes_text, percent_text, seconds_text
from tbdprof.report.figures import captions, kernel_tables, panels
from tbdprof.report.figures.panels import Bars, Panel, Series
from tbdprof.report.page.figures import Figures, digits_text
from tbdprof.report.page.look import BLUE, GREEN, OF_CATEGORY, ORANGE, PINK, RED, SKY, Spec, axis, chart, legend
from tbdprof.report.page.render import fill
from tbdprof.report.page.tables import Cell, Column, Table, figure, number, table, word
from tbdprof.report.page.texts import in_chart, readable
from tbdprof.report.page.words import DEFINITIONS
from tbdprof.report.sweep import sentences
from tbdprof.results.sweep import Sweep, SweepPoint

COLORS = (BLUE, ORANGE, GREEN, PINK, SKY, RED)
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "pentagon")
LINES = ((4, panels.throughput), (5, panels.busy), (6, panels.fp32))
COLUMNS = (
    *(Column("throughput", True, "Throughput"), Column("step", True), Column("memory", True, "Peak (memory)")),
    *(
        Column("busy", True, "Device busy"),
        Column("FP32 utilization", True, "Utilization"),
        Column("ended", wraps=True),
    ),
)
KERNEL_COLUMNS = (
    *(Column("program"), Column("batch", True), Column("share", True, "Own time")),
    *(Column("utilization", True, "Utilization"), Column("kernel")),
)


def render(sweeps: Sequence[Sweep], documents: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str:
    """Return the page; `documents` are the sweeps' JSON reports, `names` tell the sweeps apart.

    Raise UnavailableError where Jinja2 or Plotly is not installed.
    """
    shown = [readable(sweep) for sweep in sweeps]
    drawn = [*_drawn(shown, names)]
    charts = {name: spec for _, _, found in drawn for name, spec in found.items()}
    parts = [_part(sweep, Figures(readable(found))) for sweep, found in zip(shown, documents, strict=True)]
    return fill(
        "sweep.html",
        {"charts": charts, "memory": None},
        title=" and ".join(sweep.title for sweep in shown),
        parts=parts,
        drawn=drawn,
        charts=charts,
        kernels=_kernels(shown[0]),
        words=DEFINITIONS,
    )


def _drawn(sweeps: Sequence[Sweep], names: Sequence[str]) -> Iterator[tuple[int, str, dict[str, Spec]]]:
    """Yield each figure: its number, its caption, and its charts by name."""
    one = sweeps[0]
    for place, found in LINES:
        yield place, captions.caption(place, [one]), _charts(place, [_lines(panel) for panel in found(one)])
    if len(sweeps) > 1:
        bars = [_bars(panel, stacked=False) for panel in panels.devices(one, sweeps[1], (names[0], names[1]))]
        yield 7, captions.caption(7, sweeps), _charts(7, bars)
    yield 8, captions.caption(8, [one]), _charts(8, [_bars(panel, stacked=True) for panel in panels.memory(one)])


def _charts(place: int, found: Sequence[Spec]) -> dict[str, Spec]:
    return {f"figure-{place}-{number}": spec for number, spec in enumerate(found)}


def _lines(panel: Panel) -> Spec:
    sizes = sorted({size for each in panel.series for size in _sizes(each)})
    places = {size: place for place, size in enumerate(sizes)}
    traces = [_line(each, places, number) for number, each in enumerate(panel.series)]
    full = [_full(each, places) for each in panel.series if each.full]
    ticks = {"tickvals": list(range(len(sizes))), "ticktext": [str(size) for size in sizes]}
    return chart(
        [*traces, *full],
        height=330,
        legend=legend(),
        title={"text": in_chart(panel.title), "font": {"size": 14}},
        margin={"l": 64, "r": 16, "t": 76, "b": 48},
        xaxis=axis("batch size", **ticks),
        yaxis=axis(in_chart(panel.unit), rangemode="tozero"),
    )


def _sizes(series: Series) -> list[int]:
    return [mark.batch for mark in series.marks] + [*series.full, *series.lacking]


def _line(series: Series, places: Mapping[int, int], number: int) -> Spec:
    above = [0.0 if mark.high is None else mark.high - mark.value for mark in series.marks]
    below = [0.0 if mark.low is None else mark.value - mark.low for mark in series.marks]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": in_chart(series.label),
        "showlegend": bool(series.label),
        "x": [places[mark.batch] for mark in series.marks],
        "y": [mark.value for mark in series.marks],
        "error_y": {"type": "data", "symmetric": False, "array": above, "arrayminus": below, "thickness": 1},
        "customdata": [mark.batch for mark in series.marks],
        "marker": {"color": COLORS[number % len(COLORS)], "symbol": SYMBOLS[number % len(SYMBOLS)], "size": 8},
        "line": {"color": COLORS[number % len(COLORS)]},
        "hovertemplate": "batch %{customdata}: %{y:.4g}<extra>%{fullData.name}</extra>",
    }


def _full(series: Series, places: Mapping[int, int]) -> Spec:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": in_chart(f"{series.label} out of memory".strip()),
        "x": [places[size] for size in series.full],
        "y": [0.0] * len(series.full),
        "marker": {"color": RED, "symbol": "x", "size": 10},
        "hoverinfo": "name",
    }


def _bars(panel: Bars, *, stacked: bool) -> Spec:
    labels = [in_chart(bar.label, 32) + (f" ({in_chart(bar.reason)})" if bar.reason else "") for bar in panel.bars]
    traces = [
        {
            "type": "bar",
            "name": in_chart(name.replace("_", " ")),
            "x": labels,
            "y": [bar.parts.get(name, 0.0) for bar in panel.bars],
            "marker": {"color": OF_CATEGORY[name] if stacked else COLORS[place % len(COLORS)]},
            "hovertemplate": "%{x}<br>%{fullData.name}: %{y:.4g}<extra></extra>",
        }
        for place, name in enumerate(panel.names)
        if any(bar.parts.get(name) for bar in panel.bars)
    ]
    return chart(
        traces,
        height=340,
        barmode="stack" if stacked else "group",
        legend=legend(),
        title={"text": in_chart(panel.title), "font": {"size": 14}},
        margin={"l": 64, "r": 16, "t": 76, "b": 48},
        xaxis={"type": "category", "automargin": True},
        yaxis=axis(in_chart(panel.unit), rangemode="tozero"),
    )


def _part(sweep: Sweep, figures: Figures) -> dict[str, Any]:
    swept = [name for name in sweep.swept if len({point.settings.get(name) for point in sweep.points}) > 1]
    columns = (*(Column(name.replace("_", " "), name == sweep.batch) for name in swept), *COLUMNS)
    rows = [[*_point(figures, place, point, swept)] for place, point in enumerate(sweep.points)]
    return {
        "title": sweep.title,
        "sentences": list(sentences(sweep)),
        "table": table(f"Points of {sweep.title}", columns, rows, total=len(rows), can_filter=True),
    }


def _point(figures: Figures, place: int, point: SweepPoint, swept: Sequence[str]) -> Iterator[Cell]:
    path, found = f"/points/{place}/figures", point.figures
    for name in swept:
        yield figure(figures, f"/points/{place}/settings/{name}", text=str(point.settings.get(name, "")))
    if found is None:
        yield from (word("") for _ in COLUMNS[:-1])
    else:
        rate = "" if found.rate is None else f"{digits_text(found.rate.per_s)} {found.unit}/s"
        yield figure(figures, f"{path}/rate/per_s", text=rate)
        yield figure(figures, f"{path}/step_seconds", text=seconds_text((found.step_seconds or 0) * 1e9))
        yield figure(figures, f"{path}/peak_bytes", text=bytes_text(found.peak_bytes or 0))
        yield figure(figures, f"{path}/busy", text=percent_text(found.busy or 0))
        yield figure(figures, f"{path}/fp32", text=percent_text(found.fp32 or 0))
    yield word(f"{point.end.value}{'' if point.reason is None else f': {point.reason}'}")


def _kernels(sweep: Sweep) -> Table:
    rows = [
        (
            word(program),
            number(int(batch), str(batch)),
            number(share, percent_text(share), share),
            number(used, "" if used is None else percent_text(used)),
            word(name),
        )
        for label, point in kernel_tables.chosen(sweep).items()
        for program, batch, share, used, name in kernel_tables.rows(label, point, sweep.batch)
    ]
    name = "The longest kernels below the average utilization (tables V and VI of the TBD paper)"
    return table(name, KERNEL_COLUMNS, rows, total=len(rows))
