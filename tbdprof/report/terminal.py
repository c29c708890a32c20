"""The report for people: a screen with the verdict, then kernels, layers and memory, then how it was measured."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from rich.console import Group, RenderableType
from rich.text import Text

from tbdprof.report.plain import plain
from tbdprof.report.terminal_parts import (
    course,
    device_memory_tables,
    device_tables,
    kernel_tables,
    layer_tables,
    level_tables,
    memory_tables,
    overview,
    sampled_tables,
)
from tbdprof.report.terminal_parts.tables import printed
from tbdprof.results.summary import Summary


class Part(Protocol):
    """A part of the report: the tables of one subject, empty if nothing is known about it."""

    def __call__(self, summary: Summary, *, full: bool = False) -> list[RenderableType]:
        """Return its tables, in full or with the longest rows only."""


PARTS: Mapping[str, Part] = {
    "kernels": kernel_tables.view,
    "layers": layer_tables.view,
    "memory": memory_tables.view,
}


def render(summary: Summary, *, width: int | None = None, color: bool = False, full: bool = False) -> str:
    """Return the report as text for a terminal, `width` columns wide (by default as wide as the terminal)."""
    return printed(view(summary, full=full), width=width, color=color)


def render_part(summary: Summary, part: str, *, width: int | None = None, color: bool = False) -> str:
    """Return one part of the report in full, or why it is empty."""
    summary = plain(summary)
    tables = PARTS[part](summary, full=True)
    content = _apart(tables) if tables else Text(f"not measured: {why_empty(summary, part)}")
    return printed(content, width=width, color=color)


def why_empty(summary: Summary, part: str) -> str:
    """Return the reason why a part has nothing to show."""
    path = {"layers": "time_by_layer"}.get(part, part)
    return summary.missing.get(path, f"the run has no {part}")


def view(summary: Summary, *, full: bool = False) -> RenderableType:
    """Return the report as something rich can print; what a text of the recording cannot show is escaped."""
    summary = plain(summary)
    parts = (*PARTS.values(), device_memory_tables.view, sampled_tables.view, level_tables.view)
    tables = [table for part in parts for table in part(summary, full=full)]
    first = [overview.view(summary, full=full), *device_tables.view(summary, full=full)]
    notes = [Group(*found)] if (found := course.notes(summary)) else []
    ended = device_memory_tables.post_mortem(summary)
    return _apart([*ended, *first, *tables, course.view(summary), *notes])


def _apart(parts: Iterable[RenderableType]) -> RenderableType:
    """Return parts with an empty line between them."""
    spaced = [piece for part in parts for piece in (Text(), part)]
    return Group(*spaced[1:])
