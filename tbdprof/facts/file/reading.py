"""Reads a recording from its file and changes nothing in it."""

import sqlite3
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import Any

from tbdprof.errors import RecordingFormatError
from tbdprof.facts.file import checksums
from tbdprof.facts.file.checks import Texts
from tbdprof.facts.file.format import FIRST_WITH_CHECKSUMS
from tbdprof.facts.file.opening import opened
from tbdprof.facts.file.run_values import run_from
from tbdprof.facts.file.tables import Blocks
from tbdprof.facts.file.untrusted import DamagedError, rows_of
from tbdprof.facts.keys import RemarkOn
from tbdprof.facts.recording import DAMAGED, STATES, Recording, Window
from tbdprof.facts.records import Strings

_ERRORS = (sqlite3.Error, zlib.error, ValueError, LookupError, OverflowError, MemoryError, RecursionError)


def load(path: str | Path, *, salvage: bool = False, kinds: Collection[str] | None = None) -> Recording:
    """Read a recording; raise RecordingFormatError with one line that says what is wrong with the file.

    With `salvage`, windows that are damaged are left out, and a remark on the damage says which. Given `kinds`,
    records of other kinds are not read.
    """
    path = Path(path)
    try:
        with opened(path) as (connection, version):
            return _Reader(connection, version, path.stat().st_size, kinds, salvages=salvage).recording()
    except _ERRORS as error:
        raise RecordingFormatError(f"{path} is damaged: {error or type(error).__name__}") from error
    except OSError as error:  # a journal that may not be read, or no room for a copy
        where = "" if error.filename is None else f" ({error.filename})"
        raise RecordingFormatError(f"cannot read {path}: {error.strerror}{where}") from error


class _Reader:
    def __init__(
        self,
        connection: sqlite3.Connection,
        version: int,
        file_bytes: int,
        kinds: Collection[str] | None,
        *,
        salvages: bool,
    ) -> None:
        self._connection = connection
        self._kinds = kinds
        self._version = version
        self._file_bytes = file_bytes
        self._salvages = salvages
        self._has_checksums = version >= FIRST_WITH_CHECKSUMS
        self._sums = self._checksums()
        self._damage: list[str] = []

    def recording(self) -> Recording:
        run = run_from(dict(self._checked("run", key=str, value=str)))
        missing = dict(self._checked("missing", collector=str, reason=str))
        strings = Strings(tuple(text for _, text in self._numbered("text", id=int, text=str)))
        windows = self._windows(Texts(strings))
        if self._damage:
            missing[RemarkOn.DAMAGE] = f"the file is damaged; left out: {'; '.join(self._damage)}"
        if not self._has_checksums:
            missing[RemarkOn.CHECKSUMS] = f"format {self._version} has none: damage to this file may go unnoticed"
        return Recording(run, windows, strings, missing)

    def _windows(self, texts: Texts) -> list[Window]:
        sums = {"blocks": int, "crc": int} if self._has_checksums else {}
        rows = self._numbered("window", ordinal=int, name=str, state=str, **sums)
        if unknown := {state for _, _, state, *_ in rows} - STATES:
            raise DamagedError(f"window.state: unknown: {min(unknown)!r}")
        blocks = Blocks(self._connection, self._version, self._file_bytes, len(rows), salvages=self._salvages)
        windows = [Window(ordinal, name, state) for ordinal, name, state, *_ in rows]
        for window, (_, _, _, *expected) in zip(windows, rows, strict=True):
            try:
                window.tables.update(blocks.tables(window.ordinal, expected, texts, self._kinds))
            except _ERRORS as error:
                self._leave_out(window, error)
        return windows

    def _leave_out(self, window: Window, error: Exception) -> None:
        where = f"{window.name} (window {window.ordinal}): {error}"
        if not self._salvages:
            raise DamagedError(f"{where}; tbdprof report or export with --salvage leaves this window out") from error
        window.state = DAMAGED
        self._damage.append(where)

    def _numbered(self, table: str, **types: type) -> list[tuple[Any, ...]]:
        rows = self._checked(table, **types)
        if [number for number, *_ in rows] != list(range(len(rows))):
            raise DamagedError(f"{table}.{next(iter(types))}: not the numbers from 0 on")
        return rows

    def _checked(self, table: str, **types: type) -> list[tuple[Any, ...]]:
        """Return the rows of a table that has a checksum of its own."""
        rows = [values for _, values in rows_of(self._connection, table, types, self._file_bytes)]
        if len({key for key, *_ in rows}) != len(rows):
            raise DamagedError(f"{table}.{next(iter(types))}: the same one twice")
        if self._has_checksums and self._sums.get(table) != (len(rows), checksums.of_rows(rows)):
            raise DamagedError(f"{table}: rows are missing, doubled or changed")
        return rows

    def _checksums(self) -> dict[str, tuple[int, int]]:
        """Return how many rows each table has that has a checksum of its own, and that checksum."""
        if not self._has_checksums:
            return {}
        columns = {"name": str, "rows": int, "crc": int}
        found = rows_of(self._connection, "checksum", columns, self._file_bytes)
        return {name: (rows, crc) for _, (name, rows, crc) in found}
