"""The format of a recording's file: one SQLite database, `*.tbd`, and nothing beside it.

A window's records are committed in one transaction when the window ends (each block of a clean window by itself). So a
killed process loses the window it was in and no other. The journal is truncated, and there is no write-ahead log: after
`kill -9` the one file alone must be readable.

Events are stored by column. A row of `column_block` is one column of one kind of record in one window: the bytes of a
little-endian array, compressed by zlib. `docs/recording.md` describes the tables; `tbdprof export` writes them plain.

History of the format (`PRAGMA user_version`):
  1  first: run, missing, window, text, column_block.
  2  kernels, the work of a span (what its FLOPs are counted from), the device's peaks.
  3  samples of a stretch of time, counts of single kernels, the thread and the graph that launched a kernel, what a
     device does without its tensor cores.
  4  what a step consumed beside the run's own units: other units, padding, lengths; which unit is a sample.
  5  checksums of all rows.
  6  of what operators a compiler made a kernel.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tbdprof.facts.rows import KINDS

FORMAT_VERSION = 6
FIRST_WITH_CHECKSUMS = 5
APPLICATION_ID = 0x54424450  # "TBDP"
SQLITE_MAGIC = b"SQLite format 3\x00"
MOST_BYTES = 4 << 30  # of a file, and of its rows in memory

_ALIKE = """
CREATE TABLE run (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE missing (collector TEXT PRIMARY KEY, reason TEXT NOT NULL);
CREATE TABLE text (id INTEGER PRIMARY KEY, text TEXT NOT NULL);
"""
SCHEMA = f"""{_ALIKE}
CREATE TABLE window (
    ordinal INTEGER PRIMARY KEY, name TEXT NOT NULL, state TEXT NOT NULL,
    blocks INTEGER NOT NULL, crc INTEGER NOT NULL
);
CREATE TABLE column_block (
    window INTEGER NOT NULL, kind TEXT NOT NULL, part INTEGER NOT NULL, name TEXT NOT NULL,
    dtype TEXT NOT NULL, rows INTEGER NOT NULL, data BLOB NOT NULL, crc INTEGER NOT NULL,
    PRIMARY KEY (window, kind, part, name)
);
CREATE TABLE checksum (name TEXT PRIMARY KEY, rows INTEGER NOT NULL, crc INTEGER NOT NULL);
"""
SCHEMA_WITHOUT_CHECKSUMS = f"""{_ALIKE}
CREATE TABLE window (ordinal INTEGER PRIMARY KEY, name TEXT NOT NULL, state TEXT NOT NULL);
CREATE TABLE column_block (
    window INTEGER NOT NULL, kind TEXT NOT NULL, part INTEGER NOT NULL, name TEXT NOT NULL,
    dtype TEXT NOT NULL, rows INTEGER NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (window, kind, part, name)
);
"""

# The version that added a kind of record, or a column to one; all others are of version 1.
_ADDED: Mapping[str | tuple[str, str], int] = {
    "kernel": 2,
    "count": 3,
    "step_count": 4,
    "fused": 6,
    ("span", "work"): 2,
    ("sample", "start_ns"): 3,
    ("kernel", "thread"): 3,
    ("kernel", "graph"): 3,
}


def schema(version: int) -> str:
    """Return the statements that make the tables of a version of the format."""
    return SCHEMA if version >= FIRST_WITH_CHECKSUMS else SCHEMA_WITHOUT_CHECKSUMS


def columns(kind: str, version: int = FORMAT_VERSION) -> dict[str, np.dtype[Any]]:
    """Return the columns that a kind of record has in a version of the format, by name; none for an unknown kind."""
    if kind not in KINDS or _ADDED.get(kind, 1) > version:
        return {}
    names = KINDS[kind].names or ()
    return {name: KINDS[kind][name] for name in names if _ADDED.get((kind, name), 1) <= version}
