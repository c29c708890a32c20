"""Parse Nsight Compute's output: its raw page as CSV, one row per kernel launch, between lines of its own.

The line after the header has the units. Numbers may have thousands separators. A metric without a value is `n/a`. Lines
of the tool begin with `==ERROR==`, `==WARNING==` or `==PROF==`. Kernel names are requested as the compiler wrote them
and demangled here, by the function that torch's profiler uses: the tool's own spelling differs.
"""

import csv
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tbdprof.collect.activity.demangling import demangled

Triple = tuple[int, int, int]
Values = Mapping[str, float]

NAME, STREAM, BLOCK, GRID = "Kernel Name", "Stream", "Block Size", "Grid Size"
# Units that are not base units; everything else counts in ones (instructions, cycles, tensor-core operations).
SCALES: Mapping[str, float] = {
    "Kbyte": 1e3,
    "Mbyte": 1e6,
    "Gbyte": 1e9,
    "us": 1e3,
    "usecond": 1e3,
    "ms": 1e6,
    "msecond": 1e6,
    "s": 1e9,
    "second": 1e9,
    "%": 0.01,
}
_SAID = re.compile(r"^==(ERROR|WARNING)== *(.*?) *$", re.MULTILINE)
_UNKNOWN = re.compile(r"Failed to find metric (?:regex:\^?)?(\w+(?:\.\w+)*)")
_DENIED = re.compile(r"^==WARNING== Unable to access the following \d+ metrics?: (.*?)\.? *$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch of a kernel and the values of its metrics: nanoseconds, bytes, counts, fractions of time."""

    name: str
    stream: int
    grid: Triple
    block: Triple
    values: Values


def launches(text: str) -> list[Launch]:
    """Return the launches of a raw page in the order of the rows; none if there is no page."""
    rows = _rows(text)
    header, units = next(rows, []), next(rows, [])
    if NAME not in header or len(units) != len(header):
        return []
    at = {name: place for place, name in enumerate(header)}
    scales = {name: SCALES.get(unit, 1) for name, unit in zip(header, units, strict=True) if "__" in name}
    return [_launch(row, at, scales) for row in rows if len(row) == len(header)]


def errors(text: str) -> list[str]:
    """Return the tool's error messages."""
    return [said for kind, said in _SAID.findall(text) if kind == "ERROR"]


def unknown_metrics(text: str) -> list[str]:
    """Return the metrics that the tool does not know on this device, by name and suffix, if one was requested."""
    return list(dict.fromkeys(_UNKNOWN.findall(text)))


def denied_metrics(text: str) -> list[str]:
    """Return the metrics that the tool knows but may not read; it goes on without them."""
    return list(dict.fromkeys(name for names in _DENIED.findall(text) for name in names.split(", ")))


def _rows(text: str) -> Iterator[list[str]]:
    """Yield the fields of the page's lines, the header first."""
    begin = re.search(r'^"?ID"?,', text, re.MULTILINE)
    lines = text[begin.start() :].splitlines() if begin else []
    return csv.reader(line for line in lines if line and not line.startswith("=="))


def _launch(row: list[str], at: Mapping[str, int], scales: Mapping[str, float]) -> Launch:
    found = {name: scale * _number(row[at[name]]) for name, scale in scales.items()}
    return Launch(
        demangled(row[at[NAME]]),
        int(_cell(row, at, STREAM) or -1),
        _triple(_cell(row, at, GRID)),
        _triple(_cell(row, at, BLOCK)),
        {name: value for name, value in found.items() if math.isfinite(value)},
    )


def _cell(row: list[str], at: Mapping[str, int], column: str) -> str:
    return row[at[column]] if column in at else ""


def _number(text: str) -> float:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return math.nan


def _triple(text: str) -> Triple:
    """Return "(4, 1, 1)" as numbers; a missing number is 0."""
    found = [int(number) for number in re.findall(r"\d+", text)][:3]
    x, y, z = (*found, 0, 0, 0)[:3]
    return x, y, z
