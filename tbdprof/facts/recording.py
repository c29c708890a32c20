"""The file a run is kept in: one SQLite database, `*.tbd`, and nothing beside it.

Whatever a window recorded is committed in one transaction when the window ends (each block of a clean window by
itself), so a killed process loses the window it was in and no other. The journal is truncated, never a write-ahead
log: after `kill -9` the one file alone must be readable.

Events are stored by column: a row of `column_block` is one column of one kind of record in one window, the bytes of
a little-endian array compressed by zlib. `docs/recording.md` describes the tables; `tbdprof export` writes them plain.

History of the format (`PRAGMA user_version`):
  1  first: run, missing, window, text, column_block.
  2  kernels, the work of a span, the device's peaks.
  3  samples of a stretch of time, counts of single kernels, the thread and the graph that launched a kernel, what a
     device does without its tensor cores.
  4  what a step consumed beside the run's own units: other units, padding, lengths; which unit is a sample.
"""

import json
import sqlite3
import zlib
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from tbdprof.errors import RecordingFormatError, UsageError
from tbdprof.facts import journal
from tbdprof.facts.records import KINDS, Optimizer, Parameter, Peaks, Run, Strings, Table, Tables

FORMAT_VERSION = 4
APPLICATION_ID = 0x54424450  # "TBDP"
STILL_RUNNING = "it is still running"
KILLED = "the process was killed"
SQLITE_MAGIC = b"SQLite format 3\x00"

SCHEMA = """
CREATE TABLE run (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE missing (collector TEXT PRIMARY KEY, reason TEXT NOT NULL);
CREATE TABLE window (ordinal INTEGER PRIMARY KEY, name TEXT NOT NULL, state TEXT NOT NULL);
CREATE TABLE text (id INTEGER PRIMARY KEY, text TEXT NOT NULL);
CREATE TABLE column_block (
    window INTEGER NOT NULL, kind TEXT NOT NULL, part INTEGER NOT NULL, name TEXT NOT NULL,
    dtype TEXT NOT NULL, rows INTEGER NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (window, kind, part, name)
);
"""


@dataclass(slots=True)
class Window:
    """A stretch of steps recorded in one way: "warmup" or one of `tbdprof.loop.plan`'s."""

    ordinal: int
    name: str
    state: str = "open"  # open, complete, or cut short (ended before its steps were done)
    tables: dict[str, Table] = field(default_factory=dict)

    def table(self, kind: str) -> Table:
        """Return the window's records of a kind, an empty array where there are none."""
        return self.tables.get(kind, np.zeros(0, KINDS[kind]))


@dataclass(slots=True)
class Recording:
    """All facts of a run, and why the others are missing."""

    run: Run
    windows: list[Window] = field(default_factory=list)
    strings: Strings = field(default_factory=Strings)
    missing: dict[str, str] = field(default_factory=dict)

    def named(self, name: str) -> list[Window]:
        """Return the windows of a name that have ended, in order."""
        return [window for window in self.windows if window.name == name and window.state != "open"]

    @property
    def lost_windows(self) -> list[str]:
        """Name the windows that began and whose records never arrived: `memory (window 2)`."""
        return [f"{window.name} (window {window.ordinal})" for window in self.windows if window.state == "open"]


class Writer:
    """Keeps a file in step with a recording while it grows."""

    def __init__(self, path: Path, recording: Recording) -> None:
        self.path = path
        self._recording = recording
        self._texts = 0
        path.unlink(missing_ok=True)
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode = TRUNCATE")
        self._connection.execute("PRAGMA synchronous = NORMAL")
        self._connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        self._connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
        with self._transaction():
            for statement in filter(str.strip, SCHEMA.split(";")):
                self._connection.execute(statement)
            self._put_state()

    def write_state(self) -> None:
        """Commit the run and the list of windows, without their events."""
        with self._transaction():
            self._put_state()

    def append(self, window: Window, tables: Tables) -> None:
        """Commit new records of a window."""
        with self._transaction():
            self._put_state()
            for kind, rows in tables.items():
                self._put_rows(window.ordinal, kind, rows)

    def close(self) -> None:
        """Commit the last state and close the file, taking away the emptied journal beside it."""
        self.write_state()
        self._connection.execute("PRAGMA journal_mode = DELETE")
        self._connection.close()

    def abandon(self) -> None:
        """Close the file as it is."""
        self._connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def _put_state(self) -> None:
        put = self._connection.executemany
        run = asdict(self._recording.run)
        put("REPLACE INTO run VALUES (?, ?)", ((key, json.dumps(value)) for key, value in run.items()))
        put("REPLACE INTO missing VALUES (?, ?)", self._recording.missing.items())
        put("REPLACE INTO window VALUES (?, ?, ?)", ((w.ordinal, w.name, w.state) for w in self._recording.windows))
        new = self._recording.strings.since(self._texts)
        put("INSERT INTO text VALUES (?, ?)", enumerate(new, self._texts))
        self._texts += len(new)

    def _put_rows(self, ordinal: int, kind: str, rows: Table) -> None:
        (part,) = self._connection.execute(
            "SELECT COALESCE(MAX(part) + 1, 0) FROM column_block WHERE window = ? AND kind = ?",
            (ordinal, kind),
        ).fetchone()
        self._connection.executemany(
            "INSERT INTO column_block VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                (
                    ordinal,
                    kind,
                    part,
                    name,
                    dtype.str,
                    len(rows),
                    zlib.compress(rows[name].tobytes(), 1),
                )
                for name, dtype in _columns(kind)
            ),
        )


def claim(path: Path, *, force: bool) -> None:
    """Make sure a new recording can be written at a path; raises UsageError before any work is done."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder: give a file name, such as {path / 'run.tbd'}")
    if path.exists() and not force:
        raise UsageError(f"{path} exists: choose another name with -o, or overwrite it with --force")
    try:
        with path.open("ab"):
            pass
        path.unlink()
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}; choose another place with -o") from error


def save(recording: Recording, path: Path, *, force: bool = False) -> None:
    """Write a whole recording to a new file; raises UsageError where it exists or cannot be written."""
    claim(path, force=force)
    try:
        with closing(Writer(path, recording)) as writer:
            for window in recording.windows:
                writer.append(window, window.tables)
    except (sqlite3.Error, OSError) as error:
        raise UsageError(f"cannot write {path}: {error}") from error


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
    """Return the parts of a kind as one, letting them go: a window of millions of events is there but once."""
    parts = [blocks.pop(key) for key in list(blocks) if key[0] == kind]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _blank(kind: str, count: int) -> Table:
    """Return rows in which every column a later version added reads as not told."""
    rows = np.zeros(count, KINDS[kind])
    for name, dtype in _columns(kind):
        if dtype.kind == "i":
            rows[name] = -1
    return rows


def _columns(kind: str) -> list[tuple[str, np.dtype[Any]]]:
    return [(name, KINDS[kind][name]) for name in KINDS[kind].names or ()]
