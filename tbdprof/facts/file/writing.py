"""Writes a recording into its file, each window as it ends."""

import json
import sqlite3
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from tbdprof.facts.file import checksums
from tbdprof.facts.file.format import APPLICATION_ID, FORMAT_VERSION, SCHEMA, columns
from tbdprof.facts.file.places import take_place
from tbdprof.facts.recording import Recording, Window
from tbdprof.facts.records import Run
from tbdprof.facts.rows import Table, Tables

_Row = tuple[str | int, ...]


@dataclass(slots=True)
class _Written:
    """What is in the file: the run, how many texts, how many column blocks by window, and their checksums."""

    run: Run | None = None
    texts: int = 0
    text_crc: int = 0
    blocks: Counter[int] = field(default_factory=Counter)
    block_crcs: Counter[int] = field(default_factory=Counter)

    def copy(self) -> "_Written":
        """Return a copy that does not change with this one."""
        return replace(self, blocks=self.blocks.copy(), block_crcs=self.block_crcs.copy())


class Writer:
    """Keeps a file up to date with a recording that grows."""

    def __init__(self, path: Path, recording: Recording) -> None:
        self.path = path
        self.recording = recording
        self._written = _Written()
        path.unlink(missing_ok=True)
        self._connection = _connected(path)
        try:
            self._begin()
        except BaseException:
            self._connection.close()
            raise

    def write_state(self) -> None:
        """Commit the run and the list of windows, without their events."""
        with self._transaction():
            self._put_state()

    def append(self, window: Window, tables: Tables, instead_of: Sequence[Window] = ()) -> None:
        """Commit new records of a window, in the place of all records of others."""
        with self._transaction():
            for old in instead_of:
                self._delete_rows(old.ordinal)
            for kind, rows in tables.items():
                self._put_rows(window.ordinal, kind, rows)
            self._put_state()

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

    def _begin(self) -> None:
        self._connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        self._connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
        with self._transaction():
            for statement in filter(str.strip, SCHEMA.split(";")):
                self._connection.execute(statement)
            self._put_state()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        before = self._written.copy()
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            self._written = before
            if self._connection.in_transaction:  # on a full disk SQLite itself may have undone it
                self._connection.execute("ROLLBACK")
            raise

    def _put_state(self) -> None:
        recording = self.recording
        if recording.run is not self._written.run:  # its list of parameters is long, and commits come twice a second
            self._put_anew("run", [(key, json.dumps(value)) for key, value in asdict(recording.run).items()])
            self._written.run = recording.run
        self._put_anew("missing", list(recording.missing.items()))
        self._put_anew("window", [(w.ordinal, w.name, w.state, *self._blocks_of(w)) for w in recording.windows])
        self._put_texts(list(enumerate(recording.strings.since(self._written.texts), self._written.texts)))

    def _blocks_of(self, window: Window) -> tuple[int, int]:
        crc = checksums.together([self._written.block_crcs[window.ordinal]])
        return self._written.blocks[window.ordinal], crc

    def _put_anew(self, table: str, rows: Sequence[_Row]) -> None:
        self._connection.execute(f"DELETE FROM {table}")
        self._put(table, rows)
        self._put_checksum(table, len(rows), checksums.of_rows(rows))

    def _put_texts(self, new: Sequence[_Row]) -> None:
        self._put("text", new)
        self._written.texts += len(new)
        self._written.text_crc = checksums.together((self._written.text_crc, checksums.of_rows(new)))
        self._put_checksum("text", self._written.texts, self._written.text_crc)

    def _put_checksum(self, table: str, rows: int, crc: int) -> None:
        self._connection.execute("REPLACE INTO checksum VALUES (?, ?, ?)", (table, rows, crc))

    def _put(self, table: str, rows: Sequence[_Row]) -> None:
        """Insert rows; their text goes as bytes, because Python's SQLite refuses lone surrogates."""
        for row in rows:
            marks = ", ".join("CAST(? AS TEXT)" if isinstance(value, str) else "?" for value in row)
            values = (value.encode(errors="surrogatepass") if isinstance(value, str) else value for value in row)
            self._connection.execute(f"INSERT INTO {table} VALUES ({marks})", tuple(values))

    def _delete_rows(self, ordinal: int) -> None:
        self._connection.execute("DELETE FROM column_block WHERE window = ?", (ordinal,))
        del self._written.blocks[ordinal], self._written.block_crcs[ordinal]

    def _put_rows(self, ordinal: int, kind: str, rows: Table) -> None:
        (part,) = self._connection.execute(
            "SELECT COALESCE(MAX(part) + 1, 0) FROM column_block WHERE window = ? AND kind = ?",
            (ordinal, kind),
        ).fetchone()
        for name, dtype in columns(kind).items():
            row = (ordinal, kind, part, name, dtype.str, len(rows))
            data = zlib.compress(rows[name].tobytes(), 1)
            crc = checksums.of_row(row, data)
            self._connection.execute("INSERT INTO column_block VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*row, data, crc))
            self._written.blocks[ordinal] += 1
            self._written.block_crcs[ordinal] += crc


def _connected(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = TRUNCATE")
    connection.execute("PRAGMA synchronous = NORMAL")
    return connection
