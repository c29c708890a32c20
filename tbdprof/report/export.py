"""A recording as plain tables in SQLite, CSV or Parquet: one table per kind, with text in place of text indices.

Values of the run, shapes, and an optimizer's settings and parameters are JSON. In CSV a text is safe to open in a
spreadsheet: it has no control characters, and one that a spreadsheet would compute begins with an apostrophe.
"""

import csv
import math
import re
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tbdprof.facts.file.placing import new
from tbdprof.facts.recording import Recording
from tbdprof.facts.rows import KINDS
from tbdprof.facts.values import VALUES, TextOf
from tbdprof.report import perfetto
from tbdprof.report.json_text import json_text
from tbdprof.report.parquet import refuse_without_pyarrow, to_parquet
from tbdprof.report.plain import plain
from tbdprof.results.memory import Timeline

Row = tuple[object, ...]
RowTable = tuple[str, tuple[str, ...], Iterator[Row]]  # name, columns, rows

FORMULA = tuple("=+-@\t\r\n＝＋－＠")  # a spreadsheet computes a cell that begins with one of these
NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")

PARAMETER = ("name", "shape", "bytes", "trainable", "is_buffer")
OPTIMIZER = ("kind", "settings", "parameters")


def to_sqlite(recording: Recording, path: Path) -> None:
    """Write the plain tables into a new SQLite file."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for name, columns, rows in _tables(recording):
            listed = ", ".join(f'"{column}"' for column in columns)
            connection.execute(f'CREATE TABLE "{name}" ({listed})')
            marks = ", ".join("?" * len(columns))
            connection.executemany(f'INSERT INTO "{name}" VALUES ({marks})', ([*map(_storable, row)] for row in rows))


def to_csv(recording: Recording, folder: Path) -> None:
    """Write the plain tables into a new folder, one CSV file each."""
    folder.mkdir()
    for name, columns, rows in _tables(recording):
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(map(_spreadsheet_cell, row) for row in rows)


def write(recording: Recording, path: Path, form: str) -> None:
    """Write a recording as "sqlite", "csv" or "parquet"; raise UsageError if the target exists or cannot be written.

    The target is there when it is whole. Raise UnavailableError if Parquet is asked for without pyarrow.
    """
    if form == "parquet":
        refuse_without_pyarrow()
    with new(path) as part:
        if form == "parquet":
            to_parquet(recording, _storable_tables(_tables_of_run(recording)), part)
        else:
            {"sqlite": to_sqlite, "csv": to_csv}[form](recording, part)


def write_trace(recording: Recording, memory: Timeline | None, path: Path) -> None:
    """Write a recording as a trace; raise UsageError if the target exists or cannot be written."""
    with new(path) as part:
        perfetto.write(recording, memory, part)


def _storable_tables(tables: Iterable[RowTable]) -> Iterator[RowTable]:
    for name, columns, rows in tables:
        yield name, columns, (tuple(map(_storable, row)) for row in rows)


def _storable(cell: Any) -> Any:
    """Return a cell for a file whose text is UTF-8: half of a surrogate pair is its escape."""
    return cell.encode("utf-8", "backslashreplace").decode() if isinstance(cell, str) else cell


def _spreadsheet_cell(cell: object) -> object:
    """Return a cell for CSV; a text that a spreadsheet would compute gets an apostrophe, as one types it there."""
    if not isinstance(cell, str):
        return cell
    computed = cell.lstrip(" ").startswith(FORMULA) and not NUMBER.fullmatch(cell)
    return f"'{plain(cell)}" if computed else plain(cell)


def _tables(recording: Recording) -> Iterator[RowTable]:
    """Yield the tables about the run first, then one for each kind."""
    yield from _tables_of_run(recording)
    for kind, dtype in KINDS.items():
        yield kind, ("window", *(dtype.names or ())), _rows(recording, kind)


def _tables_of_run(recording: Recording) -> Iterator[RowTable]:
    run = asdict(recording.run)
    parameters, optimizers = run.pop("parameters"), run.pop("optimizers")
    yield "run", ("key", "value"), ((key, json_text(value, indent=None)) for key, value in run.items())
    yield "parameter", PARAMETER, map(_parameter, parameters)
    yield "optimizer", OPTIMIZER, map(_optimizer, optimizers)
    yield "missing", ("collector", "reason"), iter(recording.missing.items())
    yield (
        "window",
        ("window", "name", "state"),
        ((w.ordinal, w.name, w.state) for w in recording.windows),
    )


def _parameter(item: dict[str, Any]) -> Row:
    size = item["item_bytes"] * math.prod(item["shape"])
    return item["name"], json_text(item["shape"], indent=None), size, item["trainable"], item["is_buffer"]


def _optimizer(item: dict[str, Any]) -> Row:
    return item["kind"], json_text(item["settings"], indent=None), json_text(item["parameters"], indent=None)


def _rows(recording: Recording, kind: str) -> Iterator[Row]:
    names = KINDS[kind].names or ()
    for window in recording.windows:
        for row in window.table(kind).tolist():
            cells = (_cell(recording, kind, name, value) for name, value in zip(names, row, strict=True))
            yield (window.ordinal, *cells)


def _cell(recording: Recording, kind: str, name: str, value: object) -> object:
    values = VALUES[kind].get(name)
    if isinstance(values, TextOf) and isinstance(value, int):
        return recording.strings[value] if value >= 0 else None
    if isinstance(values, type) and isinstance(value, int):
        return values(value).name.lower()
    return hex(value) if name in ("address", "operand") and isinstance(value, int) else value
