"""Kernels on the page: the table of all, those below the average utilization, and the roofline."""

from collections.abc import Iterator, Mapping, Sequence

from tbdprof.facts.records import Peaks
from tbdprof.facts.units import decimal_text, percent_text
from tbdprof.report.page.figures import Figures
from tbdprof.report.page.look import BLUE, GREEN, ORANGE, PINK, SKY, Spec, axis, chart, legend
from tbdprof.report.page.tables import Cell, Column, Table, figure, table, word
from tbdprof.report.page.texts import in_chart
from tbdprof.report.terminal_parts.tables import layer_text, short
from tbdprof.results.kernels import Group

COLUMNS = (
    Column("kernel"),
    Column("share", True, "Own time"),
    Column("time per step", True, "Own time"),
    Column("calls", True),
    Column("utilization", True, "Utilization"),
    Column("limit", False, "Limit"),
    Column("headroom", True, "Headroom"),
    Column("FLOP per step", True, "FLOP count"),
    Column("phase", False, "Phase"),
    Column("operator", False, "Operator"),
    Column("layer", False, "Layer"),
)
OF_KIND = {"compute": BLUE, "memory": ORANGE}
CEILINGS = (GREEN, PINK, SKY)
MOST_POINTS = 400


def every(figures: Figures) -> Table:
    """Return the table of all kernels by name and phase."""
    return _of(figures, "/kernels", "Kernels by name and phase", can_filter=True)


def low(figures: Figures) -> Table:
    """Return the table of the kernels below the average utilization."""
    return _of(figures, "/low_utilization/rows", "Kernels below the average utilization")


def _of(figures: Figures, path: str, name: str, *, can_filter: bool = False) -> Table:
    found = figures.get(path) or ()
    most = max((each["share"] for each in found), default=0)
    rows = ([*_row(figures, f"{path}/{place}", each, most)] for place, each in enumerate(found))
    return table(name, COLUMNS, rows, total=len(found), can_filter=can_filter)


def _row(figures: Figures, path: str, found: Mapping[str, object], most: float) -> Iterator[Cell]:
    layers = found["layers"]
    share = found["share"]
    of_table = share / most if most and isinstance(share, int | float) else 0.0
    use = found["utilization"]
    yield word(short(str(found["name"])))
    yield figure(figures, f"{path}/share", of_table)
    yield figure(figures, f"{path}/seconds")
    yield figure(figures, f"{path}/calls")
    yield figure(figures, f"{path}/utilization", min(use, 1.0) if isinstance(use, int | float) else None)
    yield word(str(found["limit"] or ""))
    yield figure(figures, f"{path}/headroom")
    yield figure(figures, f"{path}/flops")
    yield word(str(found["phase"]))
    yield word("" if found["operator"] == found["name"] else str(found["operator"]))
    more = f" +{len(layers) - 1}" if isinstance(layers, Sequence) and len(layers) > 1 else ""
    yield word(f"{layer_text(layers[0])}{more}" if isinstance(layers, Sequence) and layers else "")


def roofline(groups: Sequence[Group], peaks: Peaks | None) -> Spec | None:
    """Return the chart of the kernels under the device's ceilings, or None where no kernel or no ceiling is known."""
    shown = [each for each in groups if each.intensity and each.flops_per_s and each.limit][:MOST_POINTS]
    if peaks is None or not peaks.bytes_per_s or not shown:
        return None
    used = {each.precision for each in shown}
    rates = {name: rate for name, rate in peaks.flops_per_s.items() if name in used}
    places = [each.intensity or 0 for each in shown] + [rate / peaks.bytes_per_s for rate in rates.values()]
    left, right = min(places) / 2, max(places) * 3
    traces = [_points(shown, limit) for limit in OF_KIND if any(each.limit == limit for each in shown)]
    for (name, rate), color in zip(rates.items(), CEILINGS, strict=False):
        ridge = rate / peaks.bytes_per_s
        said = f"{name.upper()} {decimal_text(rate, 'FLOP/s')} · memory {decimal_text(peaks.bytes_per_s, 'B/s')}"
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": said,
                "x": [left, ridge, right],
                "y": [left * peaks.bytes_per_s, rate, rate],
                "line": {"color": color, "width": 2},
                "hoverinfo": "skip",
            }
        )
    return chart(
        traces,
        height=420,
        legend=legend(),
        margin={"l": 64, "r": 16, "t": 64, "b": 48},
        xaxis=axis("FLOP per byte", type="log", dtick=1),
        yaxis=axis("FLOP/s", type="log", exponentformat="SI", dtick=1),
    )


def _points(shown: Sequence[Group], limit: str) -> Spec:
    mine = [each for each in shown if each.limit == limit]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": f"limited by {'arithmetic' if limit == 'compute' else 'memory'}",
        "x": [each.intensity for each in mine],
        "y": [each.flops_per_s for each in mine],
        "text": [
            f"{in_chart(short(each.name))}<br>{each.phase}, {percent_text(each.share)} of kernels' time"
            for each in mine
        ],
        "hovertemplate": "%{text}<br>%{x:.3s} FLOP/B, %{y:.3s}FLOP/s<extra></extra>",
        "marker": {"color": OF_KIND[limit], "opacity": 0.75, "size": [6 + 40 * each.share**0.5 for each in mine]},
    }
