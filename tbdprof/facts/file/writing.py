"""Writes a recording into its file, each window as it ends."""

import json
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from tbdprof.facts.file.format import APPLICATION_ID, FORMAT_VERSION, SCHEMA, columns
from tbdprof.facts.file.places import take_place
from tbdprof.facts.recording import Recording, Window
from tbdprof.facts.rows import Table, Tables


class Writer:
    """Keeps a file up to date with a recording that grows."""

    def __init__(self, path: Path, recording: Recording) -> None:
        self.path = path
        self.recording = recording
        self._texts = 0
        path.unlink(missing_ok=True)
        self._connection = _connected(path)
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
        """Commit the last state, close the file and remove the emptied journal beside it."""
        self.write_state()
        self._connection.execute("PRAGMA journal_mode = DELETE")
        self._connection.close()

    def move(self, path: Path) -> None:
        """Rename the file, and go on there; its journal is always named after it."""
        self._connection.execute("PRAGMA journal_mode = DELETE")
        self._connection.close()
        take_place(self.path, path)
        self.path = path
        self._connection = _connected(path)

    def abandon(self) -> None:
        """Close the file as it is."""
        self._connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:  # on a full disk SQLite itself may have undone it
                self._connection.execute("ROLLBACK")
            raise

    def _put_state(self) -> None:
        put = self._connection.executemany
        run = asdict(self.recording.run)
        put("REPLACE INTO run VALUES (?, ?)", ((key, json.dumps(value)) for key, value in run.items()))
        put("REPLACE INTO missing VALUES (?, ?)", self.recording.missing.items())
        put("REPLACE INTO window VALUES (?, ?, ?)", ((w.ordinal, w.name, w.state) for w in self.recording.windows))
        new = self.recording.strings.since(self._texts)
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
                for name, dtype in columns(kind)
            ),
        )


def _connected(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = TRUNCATE")
    connection.execute("PRAGMA synchronous = NORMAL")
    return connection
