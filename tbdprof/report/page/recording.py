"""The page of a recording: its parts, each for the template."""

from collections.abc import Mapping
from typing import Any

from rich.text import Text

from tbdprof.facts.units import percent_text, seconds_text
from tbdprof.report.page import device, kernels, memory, time
from tbdprof.report.page.figures import Figures, label, leaves, text_of
from tbdprof.report.page.look import OF_CATEGORY, OF_PHASE, OF_STATE, Spec
from tbdprof.report.page.render import fill
from tbdprof.report.page.tables import Cell, Column, Table, figure, number, table, word
from tbdprof.report.page.texts import readable
from tbdprof.report.page.words import DEFINITIONS
from tbdprof.report.terminal_parts import course, overview
from tbdprof.report.terminal_parts.device_memory_tables import ending
from tbdprof.report.terminal_parts.tables import layer_text
from tbdprof.results.pictures import OneStep, Pictures
from tbdprof.results.summary import Summary

# The figures with a table of their own; all others stand in the list of all figures.
APART = ("/kernels/", "/low_utilization/rows/", "/low_utilization/uncounted/", "/time_by_layer/", "/missing/")
# The large figures of the first screen: a heading, the path, and the word that explains it.
HEADLINES = (
    ("Throughput", "/throughput/unit/per_s", "Throughput"),
    ("Device busy", "/utilization/device_busy/value", "Device busy"),
    ("FP32 utilization", "/utilization/fp32_flop/value", "Utilization"),
    ("MFU", "/utilization/mfu/value", "MFU"),
    ("Memory at the peak", "/memory/independent_peak_bytes", "Peak (memory)"),
    ("Memory at the peak", "/memory/allocator_peak_bytes", "Peak (memory)"),
)


def render(summary: Summary, pictures: Pictures, *, document: Mapping[str, Any], terminal: str) -> str:
    """Return the page; `document` is the JSON report, and `terminal` the report as in the terminal.

    Raise UnavailableError where Jinja2 or Plotly is not installed.
    """
    whole = Figures(readable(document))
    shown, drawn = readable(summary), readable(pictures)
    charts = _charts(shown, drawn)
    return fill(
        "recording.html",
        {"charts": charts, "memory": None if drawn.memory is None else memory.series(drawn.memory)},
        figures=whole,
        title=f"{shown.recording.run.model or 'training loop'} · {shown.recording.run.framework}",
        charts=charts,
        missing=_reasons(shown, drawn),
        **_overview(shown, whole),
        **memory.beside(drawn.memory, whole),
        **_time(shown, drawn, whole),
        **_trust(shown, whole),
        terminal=terminal,
        words=DEFINITIONS,
        legends={"category": OF_CATEGORY, "phase": OF_PHASE, "state": OF_STATE},
    )


def _charts(summary: Summary, pictures: Pictures) -> dict[str, Spec]:
    """Return the charts that the page's script draws, by name; one without its facts is not there."""
    found = {
        "phases": None if summary.step_time is None else time.phases(summary.step_time),
        "breakdown": None if pictures.memory is None else memory.breakdown(pictures.memory),
        "roofline": kernels.roofline(summary.groups or (), summary.recording.run.peaks),
        "timeline": None if pictures.step is None else time.timeline(pictures.step),
        "layers": time.by_layer(summary.layers) if summary.layers else None,
        "steps": None if pictures.step_times is None else time.step_times(pictures.step_times),
    }
    of_device = device.charts(pictures.device, pictures.windows)
    named = {name: spec for name, spec in found.items() if spec is not None}
    return named | {f"device-{place}": spec for place, spec in enumerate(of_device.values())}


def _reasons(summary: Summary, pictures: Pictures) -> Mapping[str, str]:
    return summary.missing | {f"picture {name}": reason for name, reason in pictures.missing.items()}


def _overview(summary: Summary, figures: Figures) -> dict[str, Any]:
    """Return what the first screen shows: the lines of the terminal's, and the large figures."""
    seen, headlines = set[str](), []
    for name, path, term in HEADLINES:
        if name not in seen and figures.get(path) is not None and not (name == "MFU" and "FP32 utilization" in seen):
            seen.add(name)
            headlines.append({"name": name, "path": path, "word": term, **_beside(figures, path)})
    died = summary.post_mortem
    return {
        "head": [line.plain for line in overview.head(summary)],
        "disturbed": summary.cpu if summary.cpu is not None and summary.cpu.disturbed else None,
        "headlines": headlines,
        "lines": [_line(name, text) for name, text in overview.figures(summary)],
        "unmeasured": overview.unmeasured(summary),
        "died": None if died is None else {"said": died.said, "lines": list(ending(died, summary.missing))},
        "phase_table": _phases(figures),
        "percent": percent_text,
    }


def _beside(figures: Figures, path: str) -> dict[str, str]:
    """Return what stands beside a large figure: its unit, whether it is an upper limit, its interval, and a remark."""
    if path.startswith("/throughput"):
        is_of_samples = figures.get("/throughput/samples_per_s") == figures.get(path)
        interval = "/throughput/ci95" if is_of_samples and figures.get("/throughput/ci95") else ""
        return {"unit": f"{figures.get('/throughput/unit/name')}/s", "interval": interval}
    if path.endswith("busy/value") and figures.at(path) > 1:
        return {"mark": "kernels took longer while watched"}
    return {"limit": "at most"} if figures.get(path.replace("/value", "/at_most")) is True else {}


def _line(name: str, text: Text) -> tuple[str, str, str]:
    return name, text.plain, str(text.style)


def _phases(figures: Figures) -> Table | None:
    found = figures.get("/time/phases")
    if found is None:
        return None
    columns = (Column("phase", False, "Phase"), Column("time", True), Column("busy", True), Column("share", True))
    rows = [
        (
            word(name),
            figure(figures, f"/time/phases/{name}/seconds"),
            figure(figures, f"/time/phases/{name}/busy_seconds"),
            figure(figures, f"/time/phases/{name}/share", each["share"]),
        )
        for name, each in found.items()
    ]
    return table("A step by phase", columns, rows, total=len(rows))


def _time(summary: Summary, pictures: Pictures, figures: Figures) -> dict[str, Any]:
    """Return what the parts about kernels and time show beside their charts."""
    return {
        "kernel_table": kernels.every(figures) if summary.groups else None,
        "low_table": kernels.low(figures) if summary.low_utilization is not None else None,
        "layer_table": _layers(figures),
        "step": pictures.step,
        "step_table": None if pictures.step is None else _lanes(pictures.step),
        "times_table": None if pictures.step_times is None else _times(pictures),
        "device_table": _device(pictures) if pictures.device else None,
        "is_cpu": summary.recording.run.device == "cpu",
    }


def _layers(figures: Figures) -> Table | None:
    found = figures.get("/time_by_layer")
    if not found:
        return None
    columns = (
        *(Column("layer", False, "Layer"), Column("share", True, "Own time"), Column("forward", True)),
        *(Column("backward", True), Column("other", True), Column("utilization", True, "Utilization")),
        *(Column("FLOP per step", True, "FLOP count"), Column("calls", True)),
    )
    most = max(each["share"] for each in found) or 1
    names = ("forward_seconds", "backward_seconds", "other_seconds", "utilization", "flops", "calls")
    rows = (
        (
            word(layer_text(each["layer"])),
            figure(figures, f"/time_by_layer/{place}/share", each["share"] / most),
            *(figure(figures, f"/time_by_layer/{place}/{name}") for name in names),
        )
        for place, each in enumerate(found)
    )
    return table("Time by layer", columns, rows, total=len(found), can_filter=True)


def _lanes(found: OneStep) -> Table:
    """Return the time of the step by state and phase: the top lane of the timeline, added up."""
    whole = found.end_ns - found.start_ns
    columns = (Column("device", False, "Idle"), Column("phase", False, "Phase"), Column("time", True))
    rows = [
        (word(state), word(phase), number(size, seconds_text(size), size / whole if whole else None))
        for (state, phase), size in sorted(found.sums.items(), key=lambda item: -item[1])
    ]
    return table("What the device did in this step", columns, rows, total=len(rows))


def _times(pictures: Pictures) -> Table:
    found = pictures.step_times
    assert found is not None
    columns = (
        *(Column("window", False, "Window"), Column("first step", True), Column("steps", True)),
        *(Column("time per step", True), Column("outlier")),
    )
    rows = (
        (
            word(f"{name} (window {int(found.window[place])})"),
            number(int(found.first_step[place]), str(int(found.first_step[place]))),
            number(int(found.steps[place]), str(int(found.steps[place]))),
            number(float(found.seconds[place]), seconds_text(float(found.seconds[place]) * 1e9)),
            word("outlier" if found.is_outlier[place] else ""),
        )
        for place, name in enumerate(found.names)
    )
    return table("Time per step by block of steps", columns, rows, total=len(found.names))


def _device(pictures: Pictures) -> Table:
    columns = (
        *(Column("counter"), Column("device"), Column("samples", True), Column("drawn", True)),
        *(Column("least", True), Column("most", True)),
    )
    rows = [
        (
            word(each.counter.replace("_", " ")),
            word(each.device),
            number(each.samples, f"{each.samples:,}"),
            number(len(each.values), f"{len(each.values):,}"),
            number(float(each.values.min()), f"{each.values.min():.4g}"),
            number(float(each.values.max()), f"{each.values.max():.4g}"),
        )
        for each in pictures.device
        if len(each.values)
    ]
    return table("What was sampled of the device", columns, rows, total=len(rows))


def _trust(summary: Summary, figures: Figures) -> dict[str, Any]:
    """Return what says whether to trust the rest: how it was measured, what does not hold, what is missing."""
    others = [(path, value) for path, value in leaves(figures.document) if not path.startswith(APART)]
    rows = ((Cell(label(path), path), _any(figures, path, value)) for path, value in others)
    columns = (Column("figure", wraps=True), Column("value", wraps=True))
    about_missing = (Column("what", wraps=True), Column("reason", wraps=True))
    reasons = [(word(name), word(reason)) for name, reason in summary.missing.items()]
    return {
        "measured": list(course.rows(summary)),
        "violated": [(str(line), str(getattr(line, "style", ""))) for line in course.notes(summary)],
        "missing_table": table("Missing", about_missing, reasons, total=len(reasons)),
        "all_figures": table("All figures of the report", columns, rows, total=len(others), can_filter=True),
    }


def _any(figures: Figures, path: str, value: Any) -> Cell:
    if value is None:
        return Cell(figures.show(path), None)
    text = text_of(path, value) if not isinstance(value, list | tuple | dict) else "none"
    return Cell(figures.show(path, text), value if isinstance(value, str | int | float) else None)
