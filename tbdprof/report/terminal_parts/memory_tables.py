"""Where memory went: the categories at the peak, over time, the largest tensors, the layers."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tbdprof.facts.records import Role
from tbdprof.facts.units import bytes_text, percent_text, seconds_text
from tbdprof.report.terminal_parts.tables import (
    Column,
    filled,
    layer_text,
    outside_text,
    plain,
    rest_text,
    role_text,
    title_of,
)
from tbdprof.results.memory import CATEGORIES, Holding, Memory, OfDevice
from tbdprof.results.summary import Summary

BARS = " ▁▂▃▄▅▆▇█"
ROWS = 10
CHART_COLUMNS = 50
BREAKDOWN = (
    Column("category", "word"),
    Column("at the peak"),
    Column("share"),
    Column("largest ever"),
    Column("roles at the peak", "text"),
)
TOP = (
    Column("size"),
    Column("role", "word"),
    Column("name or layer", "name"),
    Column("operator", "name"),
    Column("shape", "name"),
)
DEVICES = (Column("size"), Column("device", "word"), *(Column(name.replace("_", " ")) for name in CATEGORIES))
LAYERS = (Column("size"), Column("share"), Column("layer", "name"))


def view(summary: Summary, *, full: bool = False) -> list[RenderableType]:
    """Return the tables of memory; `full` shows everything known about the peak."""
    memory = summary.memory
    if memory is None:
        return []
    rows = None if full else ROWS
    parts: list[RenderableType] = [
        Group(title_of(f"Memory of {memory.device} at the peak"), _breakdown(memory), *_beneath(summary, memory))
    ]
    if memory.by_device:
        parts.append(filled("Memory by device at the peak", DEVICES, map(_of_device, memory.by_device)))
    if len(memory.timeline.time_ns) > 1:
        parts.append(_chart(memory))
    if memory.top_at_peak:
        parts.append(filled("Largest at the peak", TOP, map(_holding, memory.top_at_peak[:rows])))
    return [*parts, _layers(memory, rows)] if memory.by_layer else parts


def category_text(category: str) -> str:
    """Return a category's name as people read it."""
    return category.replace("_", " ")


def _breakdown(memory: Memory) -> RenderableType:
    total = ("total", bytes_text(memory.peak_bytes), "100.0 %", "", _total(memory))
    cells = [*(_category(memory, category) for category in CATEGORIES), _rounding(memory), total]
    table = plain(BREAKDOWN, cells)
    for row, category in zip(table.rows, CATEGORIES, strict=False):
        row.style = "red" if category == "unknown" and memory.category_at_peak(category) else ""
    table.rows[-1].style = "bold"
    return table


def _category(memory: Memory, category: str) -> Sequence[str]:
    size, largest = memory.category_at_peak(category), bytes_text(memory.category_max[category])
    return category_text(category), bytes_text(size), _share(size, memory), largest, _roles(memory, category)


def _rounding(memory: Memory) -> Sequence[str]:
    rounding = memory.rounding_at_peak_bytes
    largest = "" if memory.rounding_max_bytes is None else bytes_text(memory.rounding_max_bytes)
    at_peak = "not reported" if rounding is None else bytes_text(rounding)
    return "rounding", at_peak, _share(rounding or 0, memory), largest, ""


def _share(size: int, memory: Memory) -> str:
    return percent_text(size / memory.peak_bytes) if memory.peak_bytes else ""


def _roles(memory: Memory, category: str) -> str:
    """Return the roles of a category, with their sizes if there are several."""
    shown = [(role, memory.roles_at_peak[role]) for role in CATEGORIES[category] if memory.roles_at_peak[role]]
    if len(shown) == 1:
        return role_text(shown[0][0])
    return ", ".join(f"{role_text(role)} {bytes_text(size)}" for role, size in shown)


def _total(memory: Memory) -> str:
    if memory.independent_peak_bytes is None:
        return f"{memory.peak_bytes:,} bytes; no independent total"
    same = "" if _gap(memory) else ", equal to the framework's own total"
    return f"{memory.peak_bytes:,} bytes{same}"


def _gap(memory: Memory) -> str | None:
    """Return a line on the bytes between the blocks and the framework's own total, or None without a gap or total."""
    reported, total = memory.allocator_peak_bytes, memory.independent_peak_bytes
    unknown = memory.category_at_peak("unknown")
    if total is None or (total == reported and not unknown):
        return None
    if unknown:
        return f"{unknown:,} bytes of the framework's total are not explained"
    return f"{reported:,} bytes were reported, the framework says {total:,}"


def _beneath(summary: Summary, memory: Memory) -> Iterable[Text]:
    """Yield lines on memory that the breakdown does not cover."""
    whole, update = summary.recording.run.whole_run_peak_bytes, memory.at_optimizer_step
    if gap := _gap(memory):
        yield Text(gap, style="red")
    if whole is not None:
        yield Text(f"peak over the whole run: {bytes_text(whole)}")
    for each in summary.lengths:
        seen = ", ".join(f"{length:g}" for length in each.in_memory_window)
        yield Text(
            f"longest {each.name} of a step: {seen or 'none'} in the memory window, "
            f"{each.shortest:g} to {each.longest:g} in the whole run"
        )
    if update is not None:
        yield Text(f"gradients where the optimizer's step begins: {bytes_text(update[Role.GRADIENT])}")
    if memory.outside_allocator_bytes:
        yield Text(outside_text(memory) or f"outside the allocator: {bytes_text(memory.outside_allocator_bytes)}")


def _chart(memory: Memory) -> RenderableType:
    timeline = memory.timeline
    edges = np.linspace(timeline.time_ns[0], timeline.time_ns[-1], CHART_COLUMNS + 1)
    column = np.clip(np.searchsorted(edges, timeline.time_ns, side="right") - 1, 0, CHART_COLUMNS - 1)
    grid = Table.grid(padding=(0, 1))
    for category in (name for name in CATEGORIES if memory.category_max[name]):
        line = _bars(timeline.categories[category], column, memory.peak_bytes)
        grid.add_row(category_text(category), Text(line, no_wrap=True), bytes_text(memory.category_max[category]))
    span = seconds_text(float(timeline.time_ns[-1] - timeline.time_ns[0]))
    title = f"Memory over {timeline.steps} steps ({span}), full height is the peak"
    return Group(title_of(title), grid)


def _bars(values: NDArray[np.int64], column: NDArray[np.int64], full: int) -> str:
    heights, level = [], int(values[0])
    for place in range(CHART_COLUMNS):
        inside = values[column == place]
        heights.append(int(inside.max()) if len(inside) else level)
        level = int(inside[-1]) if len(inside) else level
    # Blocks that contradict the framework's total may exceed the peak.
    shares = (min(height / full, 1.0) if full else 0.0 for height in heights)
    return "".join(BARS[round(share * (len(BARS) - 1))] for share in shares)


def _holding(holding: Holding) -> tuple[str, ...]:
    place = holding.name if holding.name is not None else holding.layer
    shape = (holding.shape or "").strip("[]").replace(", ", "×")
    return bytes_text(holding.size_bytes), role_text(holding.role), place or "", holding.operator or "", shape


def _of_device(each: OfDevice) -> tuple[str, ...]:
    return bytes_text(each.size_bytes), each.device, *(bytes_text(each.categories[name]) for name in CATEGORIES)


def _layers(memory: Memory, most: int | None) -> RenderableType:
    shown, rest = memory.by_layer[:most], memory.by_layer[len(memory.by_layer[:most]) :]
    cells = [(bytes_text(size), _share(size, memory), layer_text(layer)) for layer, size in shown]
    left = sum(size for _, size in rest)
    below = [rest_text(len(rest), left / memory.peak_bytes)] if rest and memory.peak_bytes else []
    return filled("Memory by layer at the peak", LAYERS, cells, below=below)
