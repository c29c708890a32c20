"""Checksums of a recording's rows, so that a changed byte is a damaged file and not another report.

The checksum of a row is the CRC-32 of its values as a JSON list, continued over the bytes of its data if it has some.
The checksum of several rows is the sum of theirs modulo 2**32, in whatever order they are.
"""

import json
import zlib
from collections.abc import Iterable, Sequence

_MODULUS = 1 << 32


def of_row(values: Sequence[str | int], data: bytes = b"") -> int:
    """Return the checksum of a row of text and numbers, and of its data."""
    return zlib.crc32(data, zlib.crc32(json.dumps(values).encode()))


def of_rows(rows: Iterable[Sequence[str | int]]) -> int:
    """Return the checksum of several rows."""
    return together(map(of_row, rows))


def together(checksums: Iterable[int]) -> int:
    """Return the checksum of all rows whose checksums are given."""
    return sum(checksums) % _MODULUS
