"""The report for people: the verdict lines first, then where memory went."""

import io
import shutil
from collections.abc import Iterable

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from tbdprof.analysis.memory import Memory
from tbdprof.analysis.roles import CATEGORIES
from tbdprof.analysis.summary import Summary
from tbdprof.analysis.throughput import CpuUtilization, Overhead, Rate
from tbdprof.records import Role
from tbdprof.units import bytes_text, percent_text, seconds_text

LABELS = {
    "weights": "weights",
    "weight_gradients": "weight gradients",
    "feature_maps": "feature maps",
    "workspace": "workspace",
    "dynamic": "dynamic",
    "unknown": "unknown",
}
BARS = " ▁▂▃▄▅▆▇█"
TOP_ROWS = 10
LAYER_ROWS = 10
CHART_COLUMNS = 60
MOST_COLUMNS = 120


def render(summary: Summary, *, width: int | None = None, color: bool = False) -> str:
    """Return the report as text for a terminal of a width in columns (None: the one there is)."""
    return printed(view(summary), width=width, color=color)


def printed(content: RenderableType, *, width: int | None = None, color: bool = False) -> str:
    """Return anything rich can print as text."""
    columns = width or min(shutil.get_terminal_size((100, 24)).columns, MOST_COLUMNS)
    out = io.StringIO()
    Console(
        file=out, width=columns, force_terminal=color, no_color=not color, highlight=False, markup=False, emoji=False
    ).print(content)
    return out.getvalue().rstrip("\n")


def view(summary: Summary) -> RenderableType:
    """Return the report as something rich can print."""
    parts: list[RenderableType] = [_head(summary), _rates(summary)]
    if summary.memory is not None:
        parts += [
            _breakdown(summary.memory),
            _beneath(summary, summary.memory),
            _chart(summary.memory),
            _top(summary.memory),
            _layers(summary.memory),
        ]
    parts.append(_notes(summary))
    return Group(*parts)


def _head(summary: Summary) -> RenderableType:
    run = summary.recording.run
    count = summary.parameter_count
    facts = [
        f"{run.framework} {run.framework_version}".strip(),
        f"{run.device} ({run.device_name})" if run.device_name else run.device,
        f"{run.threads} threads" if run.threads else None,
        f"batch {run.batch_size}" if run.batch_size else None,
        run.precision,
        f"{count:,} parameters" if count else None,
    ]
    return Group(Text(run.model, style="bold"), Text(" · ".join(fact for fact in facts if fact)), Text())


def _rates(summary: Summary) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    for label, value in _rate_rows(summary):
        grid.add_row(Text(label, style="bold"), value)
    return Group(grid, Text())


def _rate_rows(summary: Summary) -> Iterable[tuple[str, str]]:
    run, throughput, cpu = summary.recording.run, summary.throughput, summary.cpu
    if throughput is None:
        yield "throughput", f"not measured: {summary.missing['throughput']}"
    else:
        yield "throughput", f"{_rate(throughput.rate)} {throughput.unit}/s in the clean windows"
        yield "time per step", seconds_text(throughput.step_seconds * 1e9)
        if throughput.drifted:
            each = ", ".join(_rate(rate) for rate in throughput.windows)
            yield "drifted", f"the clean windows disagree: {each} {throughput.unit}/s"
    warmup = sum(len(window.table("step")) for window in summary.recording.windows if window.name == "warmup")
    verdict = {True: "settled after", False: "NEVER SETTLED after", None: "not judged:"}[run.settled]
    method = "" if run.settled is None else f" ({run.settled_by})"
    yield "warm-up", f"{verdict} {warmup} steps{method}"
    if cpu is not None:
        yield (
            "CPU utilization",
            f"{percent_text(cpu.process)} of {cpu.cores:g} cores; others {percent_text(cpu.others)}{_beyond(cpu)}",
        )
    if summary.memory_overhead is not None:
        yield "memory window", _cost(summary.memory_overhead, drifted=bool(throughput and throughput.drifted))


def _beyond(cpu: CpuUtilization) -> str:
    return "" if cpu.affinity_cores == cpu.cores else f" of the {cpu.affinity_cores:g} it may run on"


def _rate(rate: Rate) -> str:
    if rate.interval is None:
        return f"{rate.per_s:.4g}"
    return f"{rate.per_s:.4g} [{rate.interval[0]:.4g}, {rate.interval[1]:.4g}]"


def _cost(overhead: Overhead, *, drifted: bool) -> str:
    if overhead.interval is None:
        return f"cost {overhead.ratio:.3f} times a clean step (too few blocks for an interval)"
    low, high = overhead.interval
    cost = f"{overhead.ratio:.3f} [{low:.3f}, {high:.3f}] times a clean step"
    if drifted or overhead.is_wide:
        return f"cost cannot be told: {cost}, {'and the run drifted' if drifted else 'too wide an interval'}"
    return f"cost {cost}{' (not distinguishable from none)' if low <= 1 <= high else ''}"


def _breakdown(memory: Memory) -> RenderableType:
    table = Table(title=f"Memory of {memory.device} at the peak", title_justify="left", title_style="bold")
    table.add_column("category")
    for name in ("at the peak", "share", "largest ever"):
        table.add_column(name, justify="right")
    table.add_column("roles at the peak")
    for category, label in LABELS.items():
        size = memory.category_at_peak(category)
        style = "red" if category == "unknown" and size else ""
        largest = bytes_text(memory.category_max[category])
        table.add_row(
            label,
            bytes_text(size),
            _share(size, memory),
            largest,
            _roles(memory, category),
            style=style,
        )
    rounding = memory.rounding_at_peak_bytes
    largest = "" if memory.rounding_max_bytes is None else bytes_text(memory.rounding_max_bytes)
    told = "not told" if rounding is None else bytes_text(rounding)
    table.add_row("rounding", told, _share(rounding or 0, memory), largest, "", end_section=True)
    table.add_row(
        "total",
        bytes_text(memory.peak_bytes),
        "100.0 %",
        "",
        _total(memory),
        style="bold",
    )
    return table


def _share(size: int, memory: Memory) -> str:
    return percent_text(size / memory.peak_bytes) if memory.peak_bytes else ""


def _roles(memory: Memory, category: str) -> str:
    shown = [(role, memory.roles_at_peak[role]) for role in CATEGORIES[category] if memory.roles_at_peak[role]]
    return ", ".join(f"{_role(role)} {bytes_text(size)}" for role, size in shown)


def _role(role: Role) -> str:
    return role.name.lower().replace("_", " ")


def _total(memory: Memory) -> str:
    if memory.independent_peak_bytes is None:
        return f"{memory.peak_bytes:,} bytes; no independent total"
    same = "" if _gap(memory) else ", equal to the framework's own total"
    return f"{memory.peak_bytes:,} bytes{same}"


def _gap(memory: Memory) -> str | None:
    """Say by how much the blocks miss the framework's own total, None where they do not or there is none."""
    told, total, unknown = (
        memory.allocator_peak_bytes,
        memory.independent_peak_bytes,
        memory.category_at_peak("unknown"),
    )
    if total is None or (total == told and not unknown):
        return None
    if unknown:
        return f"{unknown:,} bytes of the framework's total are not explained"
    return f"{told:,} bytes were reported, the framework says {total:,}"


def _beneath(summary: Summary, memory: Memory) -> RenderableType:
    """Say what the breakdown does not hold."""
    whole, update = summary.recording.run.whole_run_peak_bytes, memory.at_optimizer_step
    lines = [Text(gap, style="red")] if (gap := _gap(memory)) else []
    if whole is not None:
        lines.append(Text(f"peak over the whole run: {bytes_text(whole)}"))
    if update is not None:
        lines.append(Text(f"gradients where the optimizer's step begins: {bytes_text(update[Role.GRADIENT])}"))
    if memory.outside_allocator_bytes:
        outside = bytes_text(memory.outside_allocator_bytes)
        lines.append(Text(f"outside the allocator (the host's or a library's): {outside}"))
    return Group(*lines)


def _chart(memory: Memory) -> RenderableType:
    timeline = memory.timeline
    if len(timeline.time_ns) < 2:
        return Text()
    edges = np.linspace(timeline.time_ns[0], timeline.time_ns[-1], CHART_COLUMNS + 1)
    column = np.clip(np.searchsorted(edges, timeline.time_ns, side="right") - 1, 0, CHART_COLUMNS - 1)
    grid = Table.grid(padding=(0, 1))
    for category in (name for name in CATEGORIES if memory.category_max[name]):
        line = _bars(timeline.categories[category], column, memory.peak_bytes)
        grid.add_row(LABELS[category], Text(line), bytes_text(memory.category_max[category]))
    span = seconds_text(float(timeline.time_ns[-1] - timeline.time_ns[0]))
    return Group(
        Text(f"\nOver {timeline.steps} steps ({span}), full height is the peak", style="bold"),
        grid,
        Text(),
    )


def _bars(
    values: np.ndarray[tuple[int], np.dtype[np.int64]],
    column: np.ndarray[tuple[int], np.dtype[np.int64]],
    full: int,
) -> str:
    heights, level = [], int(values[0])
    for place in range(CHART_COLUMNS):
        inside = values[column == place]
        heights.append(int(inside.max()) if len(inside) else level)
        level = int(inside[-1]) if len(inside) else level
    return "".join(BARS[round(height / full * (len(BARS) - 1))] if full else BARS[0] for height in heights)


def _top(memory: Memory) -> RenderableType:
    table = Table(title="Largest at the peak", title_justify="left", title_style="bold")
    for name in ("size", "role", "name or layer", "operator", "shape"):
        table.add_column(name, justify="right" if name == "size" else "left")
    for holding in memory.top_at_peak[:TOP_ROWS]:
        place = holding.name if holding.name is not None else holding.layer
        shape = (holding.shape or "").strip("[]").replace(", ", "×")
        table.add_row(
            bytes_text(holding.size_bytes),
            _role(holding.role),
            place or "",
            holding.operator or "",
            shape,
        )
    return table


def _layers(memory: Memory) -> RenderableType:
    table = Table(title="By layer at the peak", title_justify="left", title_style="bold")
    table.add_column("size", justify="right")
    table.add_column("share", justify="right")
    table.add_column("layer")
    for layer, size in memory.by_layer[:LAYER_ROWS]:
        table.add_row(
            bytes_text(size),
            _share(size, memory),
            "(not in a layer)" if layer is None else layer or "(model)",
        )
    rest = memory.by_layer[LAYER_ROWS:]
    if rest:
        size = sum(size for _, size in rest)
        table.add_row(bytes_text(size), _share(size, memory), f"({len(rest)} more)")
    return table


def _notes(summary: Summary) -> RenderableType:
    run, lines = summary.recording.run, []
    if not run.complete:
        lines.append(Text(f"incomplete: {run.ended_by}", style="red"))
    lines += [Text(f"lost: {window}", style="red") for window in summary.lost_windows]
    if summary.memory is not None:
        lines += [Text(f"does not hold: {line}", style="red") for line in summary.memory.violations]
    lines += [Text(f"missing {name}: {reason}") for name, reason in summary.missing_now.items()]
    return Group(*lines)
