"""Reads a recording from its file and changes nothing in it."""

import json
import sqlite3
import zlib
from collections.abc import Mapping
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from tbdprof.errors import RecordingFormatError
from tbdprof.facts.file import journal
from tbdprof.facts.file.format import APPLICATION_ID, FORMAT_VERSION, SQLITE_MAGIC, columns
from tbdprof.facts.recording import KILLED, STILL_RUNNING, Recording, Window
from tbdprof.facts.records import Optimizer, Parameter, Peaks, Run, Strings
from tbdprof.facts.rows import KINDS, Table


def load(path: str | Path) -> Recording:
    """Read a recording; raises RecordingFormatError with one line that says what is wrong with the file."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            magic = file.read(len(SQLITE_MAGIC))
    except OSError as error:
        raise RecordingFormatError(f"cannot read {path}: {error.strerror}") from error
    if not magic:
        raise RecordingFormatError(f"{path} is empty: nothing was recorded")
    if magic != SQLITE_MAGIC:
        raise RecordingFormatError(f"{path} is not a tbdprof recording")
    try:
        return _load(path)
    except (sqlite3.Error, zlib.error, ValueError, TypeError, LookupError, OverflowError, MemoryError) as error:
        raise RecordingFormatError(f"{path} is damaged: {error}") from error


def _load(path: Path) -> Recording:
    beside = path.with_name(f"{path.name}-journal")
    journal.check_plain(beside)
    try:
        return _read_from(path, "ro")
    except sqlite3.OperationalError:
        if not beside.exists():
            raise
        # The process died amid a commit: undo that on a copy, the file itself is only read.
        with TemporaryDirectory() as folder:
            return _read_from(journal.copied(path, beside, Path(folder)), "rw")


def _read_from(path: Path, mode: str) -> Recording:
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode={mode}", uri=True)) as connection:
        _check(connection, path)
        return _read(connection)


def _check(connection: sqlite3.Connection, path: Path) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        raise RecordingFormatError(f"{path} is an SQLite file, but not a tbdprof recording")
    if version > FORMAT_VERSION:
        raise RecordingFormatError(
            f"{path} was written by a newer tbdprof (format {version}, this one reads up to {FORMAT_VERSION}): "
            "pip install --upgrade tbdprof"
        )


def _read(connection: sqlite3.Connection) -> Recording:
    values = {key: json.loads(value) for key, value in connection.execute("SELECT key, value FROM run")}
    texts = tuple(text for (text,) in connection.execute("SELECT text FROM text ORDER BY id"))
    windows = [Window(*row) for row in connection.execute("SELECT ordinal, name, state FROM window ORDER BY ordinal")]
    for window in windows:
        window.tables.update(_read_tables(connection, window.ordinal))
    missing = dict(connection.execute("SELECT collector, reason FROM missing"))
    return Recording(_run(values), windows, Strings(texts), missing)


def _run(values: Mapping[str, Any]) -> Run:
    known = {item.name for item in fields(Run)}
    kept = {key: value for key, value in values.items() if key in known}
    kept["parameters"] = tuple(Parameter(**{**item, "shape": tuple(item["shape"])}) for item in values["parameters"])
    kept["optimizers"] = tuple(
        Optimizer(**{**item, "parameters": tuple(item["parameters"])}) for item in values["optimizers"]
    )
    if kept.get("peaks") is not None:
        kept["peaks"] = Peaks(**kept["peaks"])
    if kept.get("ended_by") == STILL_RUNNING:
        kept["ended_by"] = KILLED
    return Run(**kept)


def _read_tables(connection: sqlite3.Connection, ordinal: int) -> dict[str, Table]:
    blocks: dict[tuple[str, int], Table] = {}
    rows = connection.execute(
        "SELECT kind, part, name, dtype, rows, data FROM column_block WHERE window = ? ORDER BY kind, part",
        (ordinal,),
    )
    for kind, part, name, dtype, count, data in rows:
        if kind not in KINDS or name not in (KINDS[kind].names or ()):
            continue
        if (kind, part) not in blocks:
            blocks[kind, part] = _blank(kind, count)
        blocks[kind, part][name] = np.frombuffer(zlib.decompress(data), dtype)
    return {kind: _joined(blocks, kind) for kind in sorted({kind for kind, _ in blocks})}


def _joined(blocks: dict[tuple[str, int], Table], kind: str) -> Table:
    """Return the parts of a kind as one table and drop them, so that millions of events are in memory only once."""
    parts = [blocks.pop(key) for key in list(blocks) if key[0] == kind]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _blank(kind: str, count: int) -> Table:
    """Return rows in which every column that a later version added counts as not reported."""
    rows = np.zeros(count, KINDS[kind])
    for name, dtype in columns(kind):
        if dtype.kind == "i":
            rows[name] = -1
    return rows
