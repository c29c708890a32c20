"""Draws panels with matplotlib, which is imported here alone."""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tbdprof.errors import UnavailableError
from tbdprof.report.figures.panels import Bars, Panel, Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMNS = 3
_SIZE = (4.2, 3.0)  # of a panel, in inches
_CAPTION = 0.75  # inches
_HEADROOM = 1.45  # the height of axes over that of their highest bar
# Colours that can be distinguished with any colour vision (Okabe and Ito), and in print by their markers and hatches.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = "osD^vP*"
_HATCHES = ("", "//", "..", "\\\\", "xx", "oo", "--")


def lines(panels: Sequence[Panel], caption: str) -> "Figure":
    """Return a figure with one line for each series, over the batch."""
    figure, all_axes = _figure(len(panels), caption)
    for axes, panel in zip(all_axes, panels, strict=False):
        sizes = sorted({size for series in panel.series for size in _sizes(series)})
        places = {size: place for place, size in enumerate(sizes)}
        for number, series in enumerate(panel.series):
            _line(axes, series, places, number)
        axes.set_xticks(range(len(sizes)), [str(size) for size in sizes])
        axes.set(title=panel.title, xlabel="batch size", ylabel=panel.unit)
        axes.set_xlim(-0.5, len(sizes) - 0.5)
        axes.set_ylim(bottom=0)
        if not any(series.marks for series in panel.series):
            axes.set(ylim=(0, 1), yticks=())
            axes.text(0.5, 0.5, "not measured", transform=axes.transAxes, ha="center", va="center", fontsize="small")
        axes.grid(axis="y", alpha=0.3)
        if any(series.label for series in panel.series):
            axes.legend(fontsize="small", frameon=False)
    return figure


def stacks(panels: Sequence[Bars], caption: str) -> "Figure":
    """Return a figure with one bar for each label, whose parts are on top of each other."""
    figure, all_axes = _figure(len(panels), caption)
    for axes, panel in zip(all_axes, panels, strict=False):
        bottoms = [0.0] * len(panel.bars)
        for number, name in enumerate(panel.names):
            heights = [bar.parts.get(name, 0.0) for bar in panel.bars]
            if any(heights):
                axes.bar(range(len(heights)), heights, bottom=bottoms, label=name.replace("_", " "), **_look(number))
            bottoms = [bottom + height for bottom, height in zip(bottoms, heights, strict=True)]
        _labelled(axes, panel, max(bottoms, default=0.0))
    return figure


def groups(panels: Sequence[Bars], caption: str) -> "Figure":
    """Return a figure with one bar for each part, side by side for each label."""
    figure, all_axes = _figure(len(panels), caption)
    for axes, panel in zip(all_axes, panels, strict=False):
        width = 0.8 / max(1, len(panel.names))
        for number, name in enumerate(panel.names):
            places = [place + (number - (len(panel.names) - 1) / 2) * width for place in range(len(panel.bars))]
            axes.bar(places, [bar.parts.get(name, 0.0) for bar in panel.bars], width, label=name, **_look(number))
        _labelled(axes, panel, max((value for bar in panel.bars for value in bar.parts.values()), default=0.0))
    return figure


def save(figure: "Figure", path: Path) -> None:
    """Write a figure; the ending of the name decides the format."""
    figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else {})


def _figure(count: int, caption: str) -> tuple["Figure", list["Axes"]]:
    try:
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError as error:
        raise UnavailableError("figures need matplotlib: pip install 'tbdprof[figures]'") from error
    columns = min(_COLUMNS, max(1, count))
    rows = -(-max(1, count) // columns)
    height = rows * _SIZE[1] + _CAPTION
    above = ConstrainedLayoutEngine(rect=(0, _CAPTION / height, 1, 1 - _CAPTION / height))
    figure = Figure(figsize=(max(columns * _SIZE[0], 6.0), height), layout=above)
    wide = int(figure.get_figwidth() * 17)
    figure.text(0.01, 0.01, textwrap.fill(caption, wide), fontsize=7, va="bottom", parse_math=False)
    found = [figure.add_subplot(rows, columns, place + 1) for place in range(count)]
    return figure, found


def _line(axes: "Axes", series: Series, places: dict[int, int], number: int) -> None:
    colour, marker = _COLOURS[number % len(_COLOURS)], _MARKERS[number % len(_MARKERS)]
    across = [places[mark.batch] for mark in series.marks]
    values = [mark.value for mark in series.marks]
    below = [0.0 if mark.low is None else max(0.0, mark.value - mark.low) for mark in series.marks]
    above = [0.0 if mark.high is None else max(0.0, mark.high - mark.value) for mark in series.marks]
    axes.errorbar(across, values, [below, above], color=colour, marker=marker, capsize=3, label=series.label)
    for size in series.full:  # at the foot: it has no value
        axes.plot([places[size]], [0], marker="x", color=colour, markersize=9, clip_on=False, zorder=5)


def _labelled(axes: "Axes", panel: Bars, highest: float) -> None:
    axes.set_xticks(range(len(panel.bars)), [bar.label for bar in panel.bars], rotation=30, ha="right", fontsize=8)
    for place, bar in enumerate(panel.bars):
        if bar.reason:
            axes.text(place, 0, f"× {bar.reason}", rotation=90, ha="center", va="bottom", fontsize=7, parse_math=False)
    axes.set(title=panel.title, ylabel=panel.unit)
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    if highest:
        axes.set_ylim(top=_HEADROOM * highest)  # the legend covers no bar
    axes.legend(fontsize="small", frameon=False, ncols=2, loc="upper center")


def _sizes(series: Series) -> list[int]:
    return [*(mark.batch for mark in series.marks), *series.full, *series.lacking]


def _look(number: int) -> dict[str, Any]:
    return {
        "color": _COLOURS[number % len(_COLOURS)],
        "hatch": _HATCHES[number % len(_HATCHES)],
        "edgecolor": "white",
    }
