"""A large table of a recording that was read: each column stays compressed until it is asked for.

Unpacked, a million spans take 87 MB and a million allocations 74 MB, and an analysis needs a few of their columns at a
time. A column is unpacked when it is asked for, and shared by those that use it at the same time.
"""

import zlib
from collections.abc import Mapping, Sequence
from typing import Any, cast
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tbdprof.facts.rows import KINDS, Table

LEAST_ROWS = 1 << 16  # a smaller table is an array of rows
_SMALL_BYTES = 2  # an item of a column that stays unpacked: codes

Part = tuple[int, bytes]  # number of rows, compressed


class Packed:
    """Rows of one kind; it is read as an array of rows is: by column, by index or mask, or as a whole."""

    def __init__(self, kind: str, columns: Mapping[str, Sequence[Part]]) -> None:
        """Take each column's parts, one after another; a column without parts was not reported, and is -1."""
        self.dtype = KINDS[kind]
        self._columns = columns
        self._length = max(sum(rows for rows, _ in parts) for parts in columns.values())
        self._unpacked: WeakValueDictionary[str, NDArray[Any]] = WeakValueDictionary()
        self._kept: dict[str, NDArray[Any]] = {}

    def as_table(self) -> Table:
        """Return this as what it is used as."""
        return cast("Table", self)

    def __len__(self) -> int:
        """Return the number of rows."""
        return self._length

    def __getitem__(self, key: Any) -> Any:
        """Return a column by its name, which cannot be written to; otherwise the rows of an index, slice or mask."""
        if isinstance(key, str):
            return self._column(key)
        size = np.zeros(self._length, np.bool_)[key].shape
        rows = np.zeros(size, self.dtype)
        for name in self._columns:
            rows[name] = self._column(name)[key]
        return rows if size else rows[()]

    def __array__(self, dtype: DTypeLike = None, copy: bool | None = None) -> NDArray[Any]:
        """Return all rows as an array."""
        rows: NDArray[Any] = self[:]
        return rows if dtype is None else rows.astype(dtype)

    def copy(self) -> Table:
        """Return all rows as an array."""
        return cast("Table", self[:])

    def tolist(self) -> list[Any]:
        """Return all rows as tuples."""
        rows: list[Any] = self[:].tolist()
        return rows

    def _column(self, name: str) -> NDArray[Any]:
        found = self._unpacked.get(name)
        if found is None:
            found = self._unpacked[name] = self._unpack(name)
            if found.itemsize <= _SMALL_BYTES:
                self._kept[name] = found
        return found

    def _unpack(self, name: str) -> NDArray[Any]:
        dtype, parts = self.dtype[name], self._columns[name]
        if not parts:
            return np.full(self._length, -1, dtype)
        plain = [
            np.frombuffer(zlib.decompress(data, bufsize=max(rows * dtype.itemsize, 1)), dtype) for rows, data in parts
        ]
        column: NDArray[Any] = plain[0] if len(plain) == 1 else np.concatenate(plain)
        column.flags.writeable = False
        return column
