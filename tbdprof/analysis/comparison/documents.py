"""The figures of a JSON report, by their paths."""

from collections.abc import Iterator, Mapping
from typing import Any

NAMES = ("name", "layer", "device", "phase")  # of a row of a list, where it has them
Figures = dict[str, float | None]


def figures_of(document: Mapping[str, Any]) -> Figures:
    """Return all numbers of a JSON report by path: `memory.at_peak.weights`, `kernels[aten::mm forward].seconds`.

    A row of a list goes by its name, layer, device and phase, or by its number from 0. A figure that was not measured
    is None; a null may also stand for a text, so that a path with None is not sure to be a figure.
    """
    return dict(_found("", document))


def _found(path: str, value: Any) -> Iterator[tuple[str, float | None]]:
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield from _found(f"{path}.{name}" if path else str(name), each)
    elif isinstance(value, list | tuple):
        for place, each in enumerate(value):
            yield from _found(f"{path}[{_row_name(place, each)}]", each)
    elif value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        yield path, value


def _row_name(place: int, row: Any) -> str:
    if not isinstance(row, Mapping):
        return str(place)
    return " ".join(str(row[name] or "") for name in NAMES if name in row) if {*NAMES} & {*row} else str(place)
