"""Reads the tables of a recording's windows from its column blocks."""

import sqlite3
import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tbdprof.facts.file import checksums, packed
from tbdprof.facts.file.checks import Texts, check_column, check_window
from tbdprof.facts.file.format import FIRST_WITH_CHECKSUMS, MOST_BYTES, columns
from tbdprof.facts.file.packed import Packed
from tbdprof.facts.file.untrusted import DamagedError, rows_of
from tbdprof.facts.rows import KINDS, Table
from tbdprof.facts.units import bytes_text

MOST_EXPANSION = 64  # bytes of rows for a byte of the file; those of real runs have up to 11
SMALL_BYTES = 16 << 20  # of rows, that a file of any size may have

_TYPES = {"window": int, "kind": str, "part": int, "name": str, "dtype": str, "rows": int, "length(data)": int}


@dataclass(frozen=True, slots=True)
class _Block:
    """A column of one kind of record, in one part of a window; its data are still in the file."""

    rowid: int
    window: int
    kind: str
    part: int
    name: str
    dtype: str
    rows: int
    data_bytes: int
    crc: int | None = None  # None: a format without checksums

    def described(self) -> tuple[str | int, ...]:
        """Return the values that its checksum is of, besides the data."""
        return self.window, self.kind, self.part, self.name, self.dtype, self.rows

    def unpacked_bytes(self) -> int:
        """Return how many bytes its values take; raise DamagedError if that cannot be."""
        dtype = columns(self.kind).get(self.name)
        if dtype is None or self.rows < 0:
            raise DamagedError(f"column_block: {self.kind[:40]}.{self.name[:40]} with {self.rows} rows")
        return self.rows * dtype.itemsize


class Blocks:
    """The column blocks of a file, sorted by window."""

    def __init__(
        self, connection: sqlite3.Connection, version: int, file_bytes: int, windows: int, *, salvages: bool
    ) -> None:
        """Find the blocks; raise DamagedError where that fails, unless `salvages` and the format has checksums."""
        self._connection = connection
        self._version = version
        self._has_checksums = version >= FIRST_WITH_CHECKSUMS
        self._of: list[list[_Block]] = [[] for _ in range(windows)]
        self._data_left = file_bytes  # for the windows that are not read yet
        self._memory_left = min(SMALL_BYTES + MOST_EXPANSION * file_bytes, MOST_BYTES)
        try:
            self._find(file_bytes)
        except (sqlite3.Error, DamagedError) as error:
            if not self._has_checksums:
                raise
            if not salvages:  # otherwise each window that lacks blocks says so itself
                raise DamagedError(
                    f"{error}; tbdprof report or export with --salvage leaves out the windows that lack blocks"
                ) from error

    def tables(
        self, window: int, expected: Sequence[int], texts: Texts, kinds: Collection[str] | None = None
    ) -> dict[str, Table]:
        """Return a window's tables, all or those of some kinds.

        `expected` has the number and the checksum of all its blocks, if the format does.

        Raise DamagedError, sqlite3.Error or zlib.error where they are damaged.
        """
        blocks = self._of[window]
        if self._has_checksums:
            crc = checksums.together(block.crc for block in blocks if block.crc is not None)
            if [len(blocks), crc] != list(expected):
                raise DamagedError("column_block: rows are missing, doubled or changed")
        blocks = [block for block in blocks if kinds is None or block.kind in kinds]
        self._take(blocks)
        blocks.sort(key=lambda block: (block.kind, block.part))
        tables = {
            kind: self._table(kind, list(of_kind), texts) for kind, of_kind in groupby(blocks, lambda block: block.kind)
        }
        check_window(tables)
        return tables

    def _find(self, file_bytes: int) -> None:
        types = _TYPES | ({"crc": int} if self._has_checksums else {})
        for rowid, values in rows_of(self._connection, "column_block", types, file_bytes):
            block = _Block(rowid, *values)
            if not 0 <= block.window < len(self._of):
                raise DamagedError("column_block.window: a window that is not there")
            self._of[block.window].append(block)

    def _take(self, blocks: Sequence[_Block]) -> None:
        """Raise DamagedError if a window's blocks have more data, or unpack to more, than a recording does by then."""
        data, unpacked = sum(block.data_bytes for block in blocks), sum(block.unpacked_bytes() for block in blocks)
        if data > self._data_left:
            raise DamagedError("column_block.data: more than the file has")
        if unpacked > self._memory_left:
            asked, left = bytes_text(unpacked), bytes_text(self._memory_left)
            raise DamagedError(f"its rows would take {asked} of memory, and this file has at most {left} left for them")
        self._data_left -= data
        self._memory_left -= unpacked

    def _table(self, kind: str, blocks: list[_Block], texts: Texts) -> Table:
        """Return the rows of a kind; many stay packed."""
        parts = [list(of_part) for _, of_part in groupby(blocks, lambda block: block.part)]
        for place, of_part in enumerate(parts):
            if of_part[0].part != place:
                raise DamagedError(f"{kind}: part {place} is missing")
        if sum(of_part[0].rows for of_part in parts) >= packed.LEAST_ROWS:
            return self._packed(kind, parts, texts)
        tables = [self._part(kind, of_part, texts) for of_part in parts]
        return tables[0] if len(tables) == 1 else np.concatenate(tables)

    def _part(self, kind: str, blocks: list[_Block], texts: Texts) -> Table:
        expected = self._expected(kind, blocks)
        table = _blank(kind, blocks[0].rows, expected)
        for block in blocks:
            table[block.name] = self._column(block, expected[block.name], texts)[1]
        return table

    def _packed(self, kind: str, parts: list[list[_Block]], texts: Texts) -> Table:
        found: dict[str, list[packed.Part]] = {name: [] for name in columns(kind)}
        for blocks in parts:
            expected = self._expected(kind, blocks)
            for block in blocks:
                found[block.name].append((block.rows, self._column(block, expected[block.name], texts)[0]))
        return Packed(kind, found).as_table()

    def _expected(self, kind: str, blocks: list[_Block]) -> dict[str, np.dtype[Any]]:
        """Return the columns that a part of a table should have; raise DamagedError if it has others."""
        expected = columns(kind, self._version)
        names = [block.name for block in blocks]
        if sorted(names) != sorted(expected):
            odd = set(names) ^ set(expected) or {name for name in names if names.count(name) > 1}
            raise DamagedError(f"{kind}.{min(odd)}: a column that is missing, doubled or unknown")
        for block in blocks:
            if (block.dtype, block.rows) != (expected[block.name].str, blocks[0].rows):
                raise DamagedError(f"{kind}.{block.name}: of another type or length")
        return expected

    def _column(self, block: _Block, dtype: np.dtype[Any], texts: Texts) -> tuple[bytes, NDArray[Any]]:
        """Return the compressed data and the checked values of a column."""
        found = self._connection.execute("SELECT data FROM column_block WHERE rowid = ?", (block.rowid,)).fetchone()
        if found is None or not isinstance(found[0], bytes):
            raise DamagedError(f"{block.kind}.{block.name}: no data")
        if block.crc not in (None, checksums.of_row(block.described(), found[0])):
            raise DamagedError(f"{block.kind}.{block.name}: its checksum does not fit")
        stream = zlib.decompressobj()
        plain = stream.decompress(found[0], block.unpacked_bytes() + 1)
        if len(plain) != block.unpacked_bytes() or not stream.eof or stream.unused_data:
            raise DamagedError(f"{block.kind}.{block.name}: not as many values as stated")
        column = np.frombuffer(plain, dtype)
        check_column(block.kind, block.name, column, texts)
        return found[0], column


def _blank(kind: str, count: int, reported: Collection[str]) -> Table:
    """Return rows whose columns are still to be set; those not reported, which a later version added, say so."""
    rows = np.zeros(count, KINDS[kind])
    for name, dtype in columns(kind).items():
        if dtype.kind == "i" and name not in reported:
            rows[name] = -1
    return rows
