"""Tables of the page: each can be sorted by a column and filtered, and says how many rows it leaves out."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from tbdprof.report.page.figures import Figures
from tbdprof.report.page.texts import shortened

MOST_ROWS = 1500

Value = str | int | float | None


@dataclass(frozen=True, slots=True)
class Cell:
    """What a cell shows, what it is sorted by, and the part of the cell that its bar fills (None: no bar)."""

    shown: Markup
    key: Value
    bar: float | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """A column's heading, whether it holds numbers, the glossary's word for it, and whether its text wraps."""

    name: str
    is_number: bool = False
    word: str = ""
    wraps: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table for the template."""

    name: str  # what it lists, for screen readers
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    left_out: int = 0
    can_filter: bool = False


def word(text: str | None) -> Cell:
    """Return a cell with a text."""
    return Cell(escape(shortened(text or "")), shortened(text or ""))


def number(value: float | None, text: str, bar: float | None = None) -> Cell:
    """Return a cell with a number that stands in no JSON report."""
    return Cell(escape(text), value, bar)


def figure(figures: Figures, path: str, bar: float | None = None, text: str | None = None) -> Cell:
    """Return a cell with a figure of the JSON report."""
    value = figures.get(path)
    key = value if isinstance(value, str | int | float) else None
    return Cell(Markup("") if value is None else figures.show(path, text), key, bar)


def table(
    name: str, columns: Sequence[Column], rows: Iterable[Sequence[Cell]], *, total: int, can_filter: bool = False
) -> Table:
    """Return a table of the first of `total` rows, without the columns that are empty in all of them."""
    first = [tuple(row) for row, _ in zip(rows, range(MOST_ROWS), strict=False)]
    filled = [place for place, _ in enumerate(columns) if any(row[place].shown for row in first)]
    kept = tuple(tuple(row[place] for place in filled) for row in first)
    return Table(name, tuple(columns[place] for place in filled), kept, total - len(kept), can_filter)
