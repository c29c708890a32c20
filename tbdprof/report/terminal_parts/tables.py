"""The look of every table in the terminal report, and the words that cells share."""

import io
import shutil
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from tbdprof.facts.records import Role
from tbdprof.facts.units import bytes_text, percent_text

if TYPE_CHECKING:  # a list of models is printed without numpy
    from tbdprof.results.memory import Memory

ABOVE = "! above 100 %: the library does fewer operations than the definition, or the peak was measured too low"
MARK = " !"
LEAST_SHOWN = 0.0005  # a smaller share is printed as 0.0 %


class Column(NamedTuple):
    """A column and the kind of its content, which decides what a narrow terminal shortens.

    A "number" (aligned right) and a "word" stay whole, a "name" is cut short, "text" wraps.
    """

    name: str
    kind: str = "number"


def plain(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> Table:
    """Return a table with all its columns and without a title."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for name, kind in columns:
        # rich narrows only the columns that may wrap; the cells of names then do not wrap but are cut.
        justify, whole = "right" if kind == "number" else "left", kind in ("number", "word")
        table.add_column(name, justify=justify, no_wrap=whole, overflow="fold")  # type: ignore[arg-type]
    for row in rows:
        table.add_row(*(_cell(text, column.kind) for text, column in zip(row, columns, strict=True)))
    return table


def _cell(text: str, kind: str) -> Text:
    return Text(text, no_wrap=True, overflow="ellipsis") if kind == "name" else Text(text)


def filled(
    title: str, columns: Sequence[Column], rows: Iterable[Sequence[str]], *, below: Sequence[str] = ()
) -> RenderableType:
    """Return a title, a table without the columns that are empty in all rows, and lines below it."""
    cells = list(rows)
    kept = [place for place, _ in enumerate(columns) if any(row[place] for row in cells)]
    table = plain([columns[place] for place in kept], [[row[place] for place in kept] for row in cells])
    marked = [ABOVE] if any(cell.endswith(MARK) for row in cells for cell in row) else []
    return Group(title_of(title), table, *(Text(line, style="dim") for line in (*below, *marked)))


def role_text(role: Role) -> str:
    """Return a role's name as people read it."""
    return role.name.lower().replace("_", " ")


def outside_text(memory: "Memory") -> str:
    """Return a line on what owners hold in memory that the allocator did not give, "" if they hold none."""
    sizes = memory.outside_allocator_max.items()
    parts = [f"{role_text(role)} {bytes_text(size)}" for role, size in sizes if role != Role.UNKNOWN]
    where = "outside the allocator: shared with other processes, mapped, or a library's (numpy's)"
    return f"{', '.join(parts)} {where}" if parts else ""


def title_of(title: str) -> Text:
    """Return a title as text; a rich table's own title would wrap at the table's width."""
    return Text(title, style="bold")


def sheet(rows: Iterable[tuple[str, RenderableType]]) -> Table:
    """Return lines that begin with a label."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    for label, value in rows:
        grid.add_row(Text(label, style="bold"), value)
    return grid


def utilization_text(value: float | None) -> str:
    """Return a utilization as a percentage, marked if it is above 100 %; empty if there is none."""
    if value is None:
        return ""
    return percent_text(value) + (MARK if value > 1 else "")


def layer_text(layer: str | None) -> str:
    """Return a layer's name for the terminal."""
    return "(not in a layer)" if layer is None else layer or "(model)"


def rest_text(count: int, share: float) -> str:
    """Return a line on the rows that a table left out."""
    return f"({count} more, {percent_text(share)})"


def short(name: str) -> str:
    """Return a kernel's name without `void` and its list of arguments."""
    bare = name.removeprefix("void ")
    if not bare.endswith(")"):
        return bare
    depth = 0
    for place in reversed(range(len(bare))):
        depth += (bare[place] == ")") - (bare[place] == "(")
        if not depth:
            return bare[:place] or bare
    return bare


def printed(content: RenderableType, *, width: int | None = None, color: bool = False) -> str:
    """Return anything rich can print as text."""
    columns = width or min(shutil.get_terminal_size((100, 24)).columns, MOST_COLUMNS)
    out = io.StringIO()
    Console(
        file=out, width=columns, force_terminal=color, no_color=not color, highlight=False, markup=False, emoji=False
    ).print(content)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()).rstrip("\n")


MOST_COLUMNS = 120
