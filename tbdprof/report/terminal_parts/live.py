"""A run while it goes on: a few lines for a terminal, or one line of plain text."""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from tbdprof.facts.records import Run
from tbdprof.facts.units import bytes_text, percent_text, seconds_text
from tbdprof.report.plain import plain
from tbdprof.report.terminal_parts.tables import LEAST_SHOWN, sheet
from tbdprof.results.memory import CATEGORIES, Memory
from tbdprof.results.summary import Summary
from tbdprof.results.time import Live, Throughput

BAR_COLUMNS = 20
NOT_YET = "not yet: {} ends first"


def view(run: Run, live: Live, summary: Summary | None, state: str) -> RenderableType:
    """Return the lines; `summary` is of the windows that have ended, `state` says whether the run goes on."""
    rows = (
        ("run", Text(plain(_run(run)))),
        ("window", Text(f"{_window(live)}{_bar(live)}")),
        ("throughput", Text(_throughput(run, live))),
        ("memory", Text(_memory(summary))),
        ("utilization", Text(", ".join(_utilization(live, summary)) or NOT_YET.format("a clean or kernels window"))),
        ("recording", Text(plain(state))),
    )
    for _, text in rows:
        text.no_wrap, text.overflow = True, "ellipsis"
    return sheet(rows)


def line(run: Run, live: Live, summary: Summary | None) -> str:
    """Return the same in one line, as far as it is known."""
    known = (
        _window(live),
        _throughput(run, live) if live.throughput is not None else "",
        "" if summary is None or summary.memory is None else f"memory {_memory(summary)}",
        ", ".join(_utilization(live, summary)),
    )
    return "; ".join(part for part in known if part)


def _run(run: Run) -> str:
    device = f"{run.device} ({run.device_name})" if run.device_name else run.device
    batch = f"batch {run.batch_size:,}" if run.batch_size else None
    parts = (run.model, f"{run.framework} {run.framework_version}".strip(), device, batch)
    return " · ".join(part for part in parts if part)


def _window(live: Live) -> str:
    if live.window is None:
        return "none yet"
    place = "" if live.place is None else f", window {live.place} of {live.planned_windows}"
    return f"{plain(live.window)}{place}: {_steps(live)}"


def _steps(live: Live) -> str:
    of = live.planned_steps
    if live.window_steps is None:
        return f"{'its' if of is None else of} steps, which are written when it ends"
    if of is None:
        return f"step {live.window_steps}{', until the time per step is steady' * live.is_open}"
    return f"step {live.window_steps} {f'of {of}' if live.window_steps <= of else f'of at least {of}'}"


def _bar(live: Live) -> str:
    if live.window_steps is None or not live.planned_steps:
        return ""
    filled = round(BAR_COLUMNS * min(live.window_steps / live.planned_steps, 1.0))
    return f"  {'█' * filled}{'░' * (BAR_COLUMNS - filled)}"


def _throughput(run: Run, live: Live) -> str:
    if live.throughput is not None:
        return _rate(live.throughput)
    if live.latest_per_s is not None:
        return f"not yet; {live.latest_per_s:,.4g} {plain(run.unit)}/s in the newest block of the warm-up"
    return NOT_YET.format("a block of steps")


def _rate(found: Throughput) -> str:
    interval = found.rate.interval
    ends = "" if interval is None else f" [{interval[0]:,.4g}, {interval[1]:,.4g}]"
    others = "".join(f", {other.rate.per_s:,.4g} {plain(other.unit)}/s" for other in found.others)
    step = seconds_text(found.step_seconds * 1e9)
    return f"{found.rate.per_s:,.4g}{ends} {plain(found.unit)}/s so far{others}, {step} a step"


def _memory(summary: Summary | None) -> str:
    if summary is None or summary.memory is None:
        return NOT_YET.format("a memory window")
    memory: Memory = summary.memory
    sizes = sorted(((memory.category_at_peak(name), name) for name in CATEGORIES), reverse=True)
    shown = [(name, size / memory.peak_bytes) for size, name in sizes if size > LEAST_SHOWN * memory.peak_bytes]
    parts = ", ".join(f"{name.replace('_', ' ')} {percent_text(share)}" for name, share in shown)
    return f"{bytes_text(memory.peak_bytes)} at the peak{f': {parts}' if parts else ''}"


def _utilization(live: Live, summary: Summary | None) -> Iterator[str]:
    found = None if summary is None else summary.utilization
    if found is not None:
        busy, of = (found.busy, "a clean step") if found.busy is not None else (found.busy_in_window, "a watched step")
        yield f"device busy {percent_text(busy)} of {of}"
        if found.flop is not None and found.flop.value is not None:
            at_most = "at most " * found.flop.at_most
            yield f"{plain(found.flop.precision).upper()} {at_most}{percent_text(found.flop.value)} while busy"
    if live.cpu is not None:
        yield f"CPU {percent_text(live.cpu.process)} of {live.cpu.cores:g} cores"
