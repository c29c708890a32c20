"""Values from a file that may be from anyone: rows of a database, and numbers in JSON."""

import json
import sqlite3
import sys
from collections.abc import Iterator, Mapping
from typing import Any

MOST = 2**63 - 1
_LONGEST = 24  # digits, more than 64 bits need


class DamagedError(ValueError):
    """Report where a file is damaged, and how."""


def rows_of(
    connection: sqlite3.Connection, table: str, types: Mapping[str, type], file_bytes: int
) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Yield rowid and values of each row as they lie in the file, without an index: that could be damaged, too.

    Raise DamagedError if a value is not of its type, and if rows repeat or have more text than the file: its pages may
    point at each other in a circle.
    """
    last, taken = None, 0
    for rowid, *values in connection.execute(f"SELECT rowid, {', '.join(types)} FROM {table} NOT INDEXED"):
        if last is not None and rowid <= last:
            raise DamagedError(f"{table}: rows are not in order")
        for (name, kind), value in zip(types.items(), values, strict=True):
            if not isinstance(value, kind):
                raise DamagedError(f"{table}.{name}: not {'text' if kind is str else 'a number'}")
        last, taken = rowid, taken + sum(len(value) for value in values if isinstance(value, str))
        if taken > file_bytes:
            raise DamagedError(f"{table}: more text than the file has")
        yield rowid, tuple(values)


def numbers_checked(written: str, least: int | None) -> Any:
    """Return what JSON stands for; raise ValueError if a number is below `least`, infinite, or needs over 64 bits."""

    def possible(number: float, most: float) -> float:
        if not -most <= number <= most or (least is not None and number < least):
            raise ValueError("an impossible number")
        return number

    def whole(digits: str) -> float:
        return possible(int(digits[:_LONGEST]), MOST)

    def real(digits: str) -> float:
        return possible(float(digits), sys.float_info.max)

    return json.loads(written, parse_int=whole, parse_float=real, parse_constant=real)
