"""Tables of figures beside those of a baseline, and the words of their cells."""

from collections.abc import Iterable, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from tbdprof.facts.units import bytes_text, decimal_text, percent_text, seconds_text
from tbdprof.report.terminal_parts.tables import Column, filled, layer_text, short, title_of
from tbdprof.results.compare import EXACT, Change

MOST_PERCENT = 20  # times: a larger ratio is no percentage
LEAST_SHOWN = 0.0005  # a smaller change is printed as 0.0 %


def changes(
    title: str, labels: tuple[str, str], rows: Iterable[Change], *, below: Sequence[str] = ()
) -> RenderableType:
    """Return a table with a row for each figure: both sides, the change, and its 95 % interval."""
    columns = (Column("", "name"), *_columns(labels))
    return filled(title, columns, [(_name(each), *_cells(each)) for each in rows], below=below)


def longest(
    title: str, labels: tuple[str, str], rows: Sequence[Change], most: int, *, layers: bool = False
) -> RenderableType:
    """Return a table of the longest changes; those within the variation between runs are counted below it."""
    step = sum(max(each.baseline or 0.0, each.other or 0.0) for each in rows)
    shown = [each for each in rows if each.differs is not False and abs(each.change) > LEAST_SHOWN * step]
    name = "layer" if layers else "name"
    columns = (Column(name, "name"), Column("phase", "word"), *_columns(labels), Column("of all"))
    cells = [
        (
            layer_text(each.name) if layers else short(each.name or ""),
            each.phase,
            *_cells(each),
            _signed(each.change / step),
        )
        for each in shown[:most]
    ]
    within = sum(each.differs is False for each in rows)
    said = [f"({len(shown) - most} more)"] if len(shown) > most else []
    if within:
        said.append(f"({within} changed by no more than they vary between runs)")
    if not cells:
        return Group(title_of(f"{title}: none"), *(Text(line, style="dim") for line in said))
    return filled(title, columns, cells, below=said)


def facts(labels: Sequence[str], differences: Mapping[str, Sequence[str]]) -> RenderableType:
    """Return a table of the facts that differ between the sides."""
    columns = (Column("", "word"), *(Column(label, "text") for label in labels))
    return filled(
        "What differs", columns, [(name, *(text or "-" for text in texts)) for name, texts in differences.items()]
    )


def value_text(value: float | None, unit: str) -> str:
    """Return a figure with its unit, empty if there is none."""
    if value is None:
        return ""
    if unit == "B":
        return bytes_text(value)
    if unit == "s":
        return seconds_text(value * 1e9)
    if unit == "share":
        return percent_text(value)
    if unit in ("FLOP", "J", "W", "Hz"):
        return decimal_text(value, unit)
    digits = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{digits} {unit}" if unit and unit != "/s" else digits


def change_text(change: Change) -> str:
    """Return a change in percent; of what is on one side only, that it came or went."""
    if change.baseline is None or change.other is None:
        return change.reason if change.reason in ("came", "went") else ""
    if not change.change:
        return "same"
    if change.ratio is None:
        return f"{'+' if change.change > 0 else '-'}{value_text(abs(change.change), change.unit)}"
    return _signed(change.ratio - 1) if change.ratio < MOST_PERCENT else f"{change.ratio:,.0f} times"


def interval_text(change: Change) -> str:
    """Return the 95 % interval of a change in percent, empty if there is none or the figure is exact."""
    if change.interval is None or change.basis == EXACT:
        return ""
    low, high = (100 * (end - 1) for end in change.interval)
    return f"[{low:+.1f}, {high:+.1f}] %" if high < 1000 else f"[{low:+.1f}, …] %"


def _columns(labels: tuple[str, str]) -> tuple[Column, ...]:
    return (Column(labels[0]), Column(labels[1]), Column("change"), Column("95 % interval"))


def _cells(change: Change) -> tuple[str, str, str, str]:
    baseline, other = value_text(change.baseline, change.unit), value_text(change.other, change.unit)
    return baseline, other, change_text(change), interval_text(change)


def _name(change: Change) -> str:
    return (change.name or "").replace("_", " ")


def _signed(fraction: float) -> str:
    return f"{100 * fraction:+.1f} %"
