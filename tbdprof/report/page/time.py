"""Time on the page: a step by phase, a step's timeline, time by layer, and the time per step over the run."""

from collections.abc import Sequence
from typing import Any

from tbdprof.facts.units import percent_text, seconds_text
from tbdprof.report.page.look import GREY, OF_PHASE, OF_STATE, OF_WINDOW, Spec, axis, chart, legend, shade
from tbdprof.report.page.texts import in_chart
from tbdprof.report.terminal_parts.tables import layer_text
from tbdprof.results.kernels import LayerTime
from tbdprof.results.pictures import Bar, OneStep, StepTimes
from tbdprof.results.time import StepTime

MOST_LAYERS = 40
DEVICE_LANE = "device: busy or idle"
LANE_PIXELS = 38

_Row = tuple[str, int, int, str]  # lane, start, end, text


def phases(found: StepTime) -> Spec:
    """Return the chart of a step by phase: busy and idle parts one after another, as they add up to the step."""
    traces, shown = [], [phase for phase in found.phases if phase.seconds]
    for phase in shown:
        idle = phase.seconds - phase.busy_seconds
        for state, seconds, pattern in (("busy", phase.busy_seconds, ""), ("idle", idle, "/")):
            said = f"{phase.name}, {state}: {seconds_text(seconds * 1e9)}, {percent_text(seconds / found.step_seconds)}"
            traces.append(
                {
                    "type": "bar",
                    "orientation": "h",
                    "name": phase.name if state == "busy" else f"{phase.name}, idle",
                    "showlegend": state == "busy",
                    "legendgroup": phase.name,
                    "x": [seconds * 1e3],
                    "y": ["step"],
                    "marker": {"color": OF_PHASE[phase.name], "pattern": {"shape": pattern, "solidity": 0.55}},
                    "hovertemplate": f"{said}<extra></extra>",
                }
            )
    return chart(
        traces,
        height=130,
        barmode="stack",
        legend=legend(),
        margin={"l": 8, "r": 16, "t": 36, "b": 40},
        xaxis=axis("ms per step: solid busy, hatched idle"),
        yaxis={"visible": False, "fixedrange": True},
    )


def timeline(found: OneStep) -> Spec:
    """Return the chart of one step by thread and stream; the top lane has what the device did or why it idled."""
    groups: dict[tuple[str, str, bool], list[_Row]] = {}  # by name, colour, and whether they lie behind the others
    for pieces, behind in ((found.slices, True), (found.pieces, False)):
        for piece in pieces:
            text = f"{'mostly ' * behind}{piece.state}, {piece.phase}<br>{seconds_text(piece.end_ns - piece.start_ns)}"
            row = DEVICE_LANE, piece.start_ns, piece.end_ns, text
            groups.setdefault((piece.state, OF_STATE[piece.state], behind), []).append(row)
    for lane in found.lanes:
        for bar in lane.bars:
            name = bar.phase if bar.count == 1 else "several short ones"
            color = OF_PHASE[bar.phase] if bar.count == 1 else shade(GREY, 0.5)
            row = in_chart(lane.name, 24), bar.start_ns, bar.end_ns, _said(bar)
            groups.setdefault((name, color, False), []).append(row)
    lanes = [DEVICE_LANE, *(in_chart(lane.name, 24) for lane in found.lanes)]
    traces = [
        _bars(name, color, rows, found.start_ns) | {"showlegend": not behind, "legendgroup": name}
        for (name, color, behind), rows in groups.items()
    ]
    return chart(
        traces,
        height=150 + LANE_PIXELS * len(lanes),
        barmode="overlay",
        legend=legend(),
        margin={"l": 8, "r": 16, "t": 60, "b": 44},
        xaxis=axis("ms from the step's start", range=[0, (found.end_ns - found.start_ns) / 1e6]),
        yaxis={"type": "category", "categoryarray": lanes[::-1], "fixedrange": True, "automargin": True},
    )


def _said(bar: Bar) -> str:
    length = seconds_text(bar.end_ns - bar.start_ns)
    if bar.count > 1:
        return f"{bar.count:,} short ones, together {seconds_text(bar.busy_ns)}<br>within {length}"
    layer = "" if bar.layer is None else f"<br>{in_chart(layer_text(bar.layer))}"
    return f"{in_chart(bar.name)}{layer}<br>{bar.phase}, {length}"


def _bars(name: str, color: str, rows: Sequence[_Row], origin: int) -> Spec:
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "y": [lane for lane, _, _, _ in rows],
        "base": [(start - origin) / 1e6 for _, start, _, _ in rows],
        "x": [(end - start) / 1e6 for _, start, end, _ in rows],
        "width": 0.8,
        "marker": {"color": color, "line": {"width": 0}},
        "text": [text for _, _, _, text in rows],
        "textposition": "none",
        "hovertemplate": "%{text}<extra></extra>",
    }


def by_layer(layers: Sequence[LayerTime]) -> Spec:
    """Return the chart of the layers with the most time: forward, backward and other."""
    shown = sorted(layers, key=lambda layer: -layer.seconds)[:MOST_LAYERS][::-1]
    names = [in_chart(layer_text(layer.layer), 40) for layer in shown]
    parts = (("forward", "forward_seconds"), ("backward", "backward_seconds"), ("other", "other_seconds"))
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "y": list(range(len(shown))),
            "x": [getattr(layer, field) * 1e3 for layer in shown],
            "text": [seconds_text(getattr(layer, field) * 1e9) for layer in shown],
            "customdata": names,
            "textposition": "none",
            "marker": {"color": OF_PHASE[name]},
            "hovertemplate": "%{customdata}<br>%{fullData.name}: %{text}<extra></extra>",
        }
        for name, field in parts
        if any(getattr(layer, field) for layer in shown)
    ]
    ticks: dict[str, Any] = {"tickvals": list(range(len(shown))), "ticktext": names, "automargin": True}
    return chart(
        traces,
        height=120 + 19 * len(shown),
        barmode="stack",
        legend=legend(),
        margin={"l": 8, "r": 16, "t": 44, "b": 44},
        xaxis=axis("ms per step, own time"),
        yaxis=ticks | {"fixedrange": True},
    )


def step_times(found: StepTimes) -> Spec:
    """Return the chart of the time per step over the run, with outliers and the means of the clean windows."""
    traces: list[Spec] = []
    for name in dict.fromkeys(found.names):
        mine = [place for place, each in enumerate(found.names) if each == name]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": name,
                "x": [int(found.first_step[place]) + (int(found.steps[place]) - 1) / 2 for place in mine],
                "y": [float(found.seconds[place]) * 1e3 for place in mine],
                "text": [_block(found, place) for place in mine],
                "hovertemplate": "%{text}<extra></extra>",
                "marker": {
                    "color": OF_WINDOW.get(name, "#8A8F98"),
                    "size": [12 if found.is_outlier[place] else 7 for place in mine],
                    "symbol": ["x" if found.is_outlier[place] else "circle" for place in mine],
                },
            }
        )
    shapes = [_mean(found, ordinal) for ordinal in dict.fromkeys(found.window.tolist())]
    return chart(
        traces,
        height=340,
        legend=legend(),
        shapes=[shape for shape in shapes if shape is not None],
        margin={"l": 64, "r": 16, "t": 44, "b": 48},
        xaxis=axis("step of the run"),
        yaxis=axis("ms per step", rangemode="tozero"),
    )


def _block(found: StepTimes, place: int) -> str:
    first, count = int(found.first_step[place]), int(found.steps[place])
    steps = f"step {first}" if count == 1 else f"steps {first} to {first + count - 1}"
    mark = "<br>outlier" if found.is_outlier[place] else ""
    window = f"{found.names[place]} (window {int(found.window[place])})"
    return f"{window}<br>{steps}: {seconds_text(float(found.seconds[place]) * 1e9)} per step{mark}"


def _mean(found: StepTimes, ordinal: int) -> Spec | None:
    """Return a line at the mean time per step of a clean window, over its steps."""
    mine = found.window == ordinal
    name = found.names[int(mine.argmax())]
    if name != "clean":
        return None
    steps, first = found.steps[mine], int(found.first_step[mine].min())
    mean = float((found.seconds[mine] * steps).sum() / steps.sum()) * 1e3
    ends = {"x0": first - 0.5, "x1": first + int(steps.sum()) - 0.5, "y0": mean, "y1": mean}
    return {"type": "line", **ends, "line": {"color": OF_WINDOW["clean"], "width": 2, "dash": "dot"}}
