"""The device on the page: its power, clocks and utilization over time."""

from collections.abc import Sequence

from tbdprof.facts import counters
from tbdprof.report.page.look import BLUE, GREEN, ORANGE, PINK, SKY, Spec, axis, chart, legend
from tbdprof.report.page.texts import in_chart
from tbdprof.results.pictures import Band, Series

COLORS = (BLUE, ORANGE, GREEN, PINK, SKY)
# A chart for each quantity: its title, what a value is divided by, and its counters.
CHARTS = (
    ("power (W)", 1.0, (counters.POWER,)),
    ("clock (MHz)", 1e6, (counters.SM_CLOCK, counters.MEMORY_CLOCK)),
    ("temperature (°C)", 1.0, (counters.TEMPERATURE,)),
    (
        "share of the time (%)",
        0.01,
        (
            *(counters.DRIVER_BUSY, counters.GPM_BUSY, counters.GPM_SM_ACTIVE, counters.GPM_OCCUPANCY),
            *(counters.GPM_FP32, counters.GPM_TENSOR, counters.GPM_DRAM, counters.PM_BUSY, counters.PM_FP32),
            *(counters.PM_TENSOR, counters.PM_DRAM),
        ),
    ),
)


def charts(series: Sequence[Series], windows: Sequence[Band]) -> dict[str, Spec]:
    """Return the charts of what was sampled, by their titles; windows are drawn as bands."""
    begins = [int(each.time_ns[0]) for each in series if len(each.time_ns)] + [band.start_ns for band in windows]
    origin = min(begins, default=0)
    found = {}
    for title, unit, names in CHARTS:
        mine = [each for each in series if each.counter in names and len(each.values)]
        if mine:
            traces = [_trace(each, unit, origin, COLORS[place % len(COLORS)]) for place, each in enumerate(mine)]
            found[title] = chart(
                traces,
                height=260,
                legend=legend(),
                shapes=[_band(band, origin, place) for place, band in enumerate(windows)],
                margin={"l": 64, "r": 16, "t": 40, "b": 44},
                xaxis=axis("s"),
                yaxis=axis(title, rangemode="tozero"),
            )
    return found


def _trace(series: Series, unit: float, origin: int, color: str) -> Spec:
    name = f"{series.counter} {series.device}".replace("_", " ")
    return {
        "type": "scatter",
        "mode": "lines",
        "name": in_chart(name),
        "x": [each / 1e9 for each in (series.time_ns - origin).tolist()],
        "y": [each / unit for each in series.values.tolist()],
        "line": {"color": color, "width": 1.5, "shape": "hv"},
        "hovertemplate": "%{y:.4g} at %{x:.3f} s<extra>%{fullData.name}</extra>",
    }


def _band(band: Band, origin: int, place: int) -> Spec:
    return {
        "type": "rect",
        "yref": "paper",
        "y0": 0,
        "y1": 1,
        "x0": (band.start_ns - origin) / 1e9,
        "x1": (band.end_ns - origin) / 1e9,
        "fillcolor": "#8A8F98",
        "opacity": 0.16 if place % 2 else 0.07,
        "line": {"width": 0},
        "layer": "below",
        "label": {"text": in_chart(band.name.partition(" ")[0], 12), "textposition": "top left", "font": {"size": 10}},
    }
