"""Damaged and hostile files, made from recordings: by seed, so that each can be made again.

A *blind* mutant is a recording some of whose bytes were changed, as a disk or a transfer may. A *forged* mutant is one
that someone made: its tables, texts, values or schema are changed and its checksums fit again. A *journal* mutant has
something beside it that SQLite would take for its own.
"""

import json
import os
import random
import shutil
import sqlite3
import struct
import zlib
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import numpy as np

from tbdprof.facts.file import checksums

NASTY_NUMBERS = (0, 1, -1, -2, 2, 127, 255, 2**31 - 1, -(2**31), 2**32, 2**62, 2**63 - 1, -(2**63))
NASTY_REALS = (float("nan"), float("inf"), -float("inf"), -1.0, 1e308, 5e-324, 0.0)
NASTY_TEXTS = (
    *("", "\x00", "\x1b[2J\x1b]0;owned\x07", "\u202egnp.exe", "=1+1", "[red]red[/red]", "a\nb\r", "\ud800", "x" * 5000),
    *(
        "[1,2]",
        "[-1]",
        "[1e999]",
        "[" * 3000,
        "{}",
        "null",
        f"[{'9' * 400}]",
        '{"operation":"matmul","sizes":{"rows":-1}}',
    ),
)
NASTY_JSON = (
    *(
        "null",
        "true",
        "-1",
        "0",
        "1e999",
        "NaN",
        '"text"',
        "[]",
        "{}",
        "9" * 400,
        "[" * 3000,
        '"\\ud800"',
        "",
        "{",
        "[[1]]",
    ),
    *(
        '{"a": 1}',
        '[{"name": 1}]',
        '[{"name": "w", "shape": [-1], "item_bytes": 4, "trainable": true}]',
        "1e300",
        "3.5",
    ),
)
Forge = Callable[[sqlite3.Connection, random.Random], None]


def blind(path: Path, rng: random.Random) -> None:
    """Change bytes of a file without knowing what they are."""
    whole = bytearray(path.read_bytes())
    way = rng.choice(("bit", "bits", "bytes", "zeros", "truncated", "page swapped", "page zeroed", "longer", "removed"))
    at = rng.randrange(len(whole))
    if way == "bit":
        whole[at] ^= 1 << rng.randrange(8)
    elif way == "bits":
        for _ in range(rng.randrange(2, 20)):
            whole[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
    elif way == "bytes":
        length = rng.randrange(1, 64)
        whole[at : at + length] = rng.randbytes(length)
    elif way == "zeros":
        length = min(rng.randrange(1, 2000), len(whole) - at)
        whole[at : at + length] = bytes(length)
    elif way == "truncated":
        del whole[at:]
    elif way == "longer":
        whole += rng.randbytes(rng.randrange(1, 5000))
    elif way == "removed":
        del whole[at : at + rng.randrange(1, 5000)]
    else:
        first, second = (4096 * rng.randrange(len(whole) // 4096) for _ in range(2))
        pages = whole[first : first + 4096], whole[second : second + 4096]
        whole[first : first + 4096], whole[second : second + 4096] = (
            (bytes(4096), pages[1]) if way == "page zeroed" else (pages[1], pages[0])
        )
    path.write_bytes(whole)


def forged(path: Path, rng: random.Random) -> None:
    """Change rows or tables of a recording, and let its checksums fit."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA journal_mode = OFF")
        with suppress(sqlite3.Error, ValueError, RecursionError):  # some changes exclude each other
            for _ in range(rng.choice((1, 1, 1, 2, 4))):
                rng.choice(FORGERIES)(connection, rng)
        with suppress(sqlite3.Error, TypeError):  # where a value is no text and no number
            sum_up(connection)
        with suppress(sqlite3.Error):
            if rng.random() < 0.1:
                rng.choice((_schema, _a_view_for_a_table))(connection, rng)


def _values(connection: sqlite3.Connection, rng: random.Random) -> None:
    rowid, dtype, data = _block(connection, rng, "rowid, dtype, data")
    column = np.frombuffer(zlib.decompress(data), dtype).copy()
    if not len(column):
        return
    for _ in range(rng.choice((1, 1, 3, len(column)))):
        nasty = (
            rng.choice(NASTY_REALS) if column.dtype.kind == "f" else rng.choice((*NASTY_NUMBERS, rng.randrange(300)))
        )
        column[rng.randrange(len(column))] = np.array(nasty).astype(column.dtype)
    if rng.random() < 0.2:
        rng.shuffle(column)
    _set_data(connection, rowid, zlib.compress(column.tobytes()))


def _shifted(connection: sqlite3.Connection, rng: random.Random) -> None:
    """Add a number to all values of a column."""
    rowid, dtype, data = _block(connection, rng, "rowid, dtype, data")
    column = np.frombuffer(zlib.decompress(data), dtype).copy()
    with np.errstate(over="ignore"):
        column += np.array(rng.choice(NASTY_NUMBERS) % 2**63).astype(dtype)
    _set_data(connection, rowid, zlib.compress(column.tobytes()))


def _bomb(connection: sqlite3.Connection, rng: random.Random) -> None:
    """State more rows than there are, or unpack to more than is stated."""
    rowid, count = _block(connection, rng, "rowid, rows")
    if rng.random() < 0.5:
        connection.execute("UPDATE column_block SET rows = ? WHERE rowid = ?", (rng.choice(NASTY_NUMBERS), rowid))
    else:
        _set_data(connection, rowid, zlib.compress(bytes(rng.choice((8 * count + 8, 50_000_000)))))


def _whole_bomb(connection: sqlite3.Connection, rng: random.Random) -> None:
    """Let all columns of a table say that they have so many rows, and have them."""
    window, kind, part = _block(connection, rng, "window, kind, part")
    rows = rng.choice((0, 1, 1000, 3_000_000, 500_000_000))
    place = "WHERE window = ? AND kind = ? AND part = ?"
    found = connection.execute(f"SELECT rowid, dtype FROM column_block {place}", (window, kind, part)).fetchall()
    for rowid, dtype in found:
        data = zlib.compress(bytes(min(rows, 4_000_000) * np.dtype(dtype).itemsize))
        _set_data(connection, rowid, data)
        connection.execute("UPDATE column_block SET rows = ? WHERE rowid = ?", (rows, rowid))


def _block_fields(connection: sqlite3.Connection, rng: random.Random) -> None:
    (rowid,) = _block(connection, rng, "rowid")
    field, values = rng.choice(
        (
            ("window", NASTY_NUMBERS),
            ("part", NASTY_NUMBERS),
            ("kind", ("span", "kernel", "colour", *NASTY_TEXTS)),
            ("name", ("start_ns", "id", "colour", *NASTY_TEXTS)),
            ("dtype", ("<f8", "|O", "<i8", "S9", "<U1000000", *NASTY_TEXTS[:5])),
            ("data", (b"", b"x", "text", 7, 1.5)),
            ("rows", (1.5, "many", b"12")),
        )
    )
    value = _bindable(rng.choice(values))
    connection.execute(f"UPDATE column_block SET {field} = {_mark(value)} WHERE rowid = ?", (value, rowid))


def _block_gone(connection: sqlite3.Connection, rng: random.Random) -> None:
    rowid, window, kind = _block(connection, rng, "rowid, window, kind")
    place, values = rng.choice(
        (("rowid = ?", (rowid,)), ("window = ?", (window,)), ("window = ? AND kind = ?", (window, kind)))
    )
    connection.execute(f"DELETE FROM column_block WHERE {place}", values)


def _block_doubled(connection: sqlite3.Connection, rng: random.Random) -> None:
    (rowid,) = _block(connection, rng, "rowid")
    names = [row[1] for row in connection.execute("PRAGMA table_info(column_block)")]
    taken = ", ".join(f"{name} + 1" if name == rng.choice(("part", "window")) else name for name in names)
    connection.execute(f"INSERT INTO column_block SELECT {taken} FROM column_block WHERE rowid = ?", (rowid,))


def _texts(connection: sqlite3.Connection, rng: random.Random) -> None:
    (count,) = connection.execute("SELECT COUNT(*) FROM text").fetchone()
    for _ in range(rng.choice((1, 3, 30))):
        text = rng.choice(NASTY_TEXTS).encode(errors="surrogatepass")
        connection.execute("UPDATE text SET text = CAST(? AS TEXT) WHERE id = ?", (text, rng.randrange(count)))
    if rng.random() < 0.2:
        connection.execute("DELETE FROM text WHERE id = ?", (rng.randrange(count),))


def _run(connection: sqlite3.Connection, rng: random.Random) -> None:
    keys = [key for (key,) in connection.execute("SELECT key FROM run ORDER BY key")]
    for _ in range(rng.choice((1, 1, 5))):
        connection.execute("UPDATE run SET value = ? WHERE key = ?", (rng.choice(NASTY_JSON), rng.choice(keys)))
    if rng.random() < 0.2:
        connection.execute("DELETE FROM run WHERE key = ?", (rng.choice(keys),))


def _deep_in_run(connection: sqlite3.Connection, rng: random.Random) -> None:
    """Change a value within the JSON of a run."""
    key = rng.choice(("parameters", "optimizers", "peaks", "options"))
    (written,) = connection.execute("SELECT value FROM run WHERE key = ?", (key,)).fetchone() or ("null",)
    value = json.loads(written)
    inner = value[rng.randrange(len(value))] if isinstance(value, list) and value else value
    if isinstance(inner, dict) and inner:
        inner[rng.choice(list(inner))] = rng.choice(
            (None, -1, 10**18, 10**30, "x", [], {}, [10**9, 10**9, 10**9], 1e308)
        )
    connection.execute("UPDATE run SET value = ? WHERE key = ?", (json.dumps(value), key))


def _windows(connection: sqlite3.Connection, rng: random.Random) -> None:
    (count,) = connection.execute("SELECT COUNT(*) FROM window").fetchone()
    field, values = rng.choice(
        (
            ("name", ("clean", "memory", "kernels", "sampled", "counted", "out_of_memory", "warmup", *NASTY_TEXTS)),
            ("state", ("open", "complete", "cut short", "damaged", *NASTY_TEXTS)),
            ("ordinal", NASTY_NUMBERS),
        )
    )
    value = _bindable(rng.choice(values))
    connection.execute(f"UPDATE window SET {field} = {_mark(value)} WHERE ordinal = ?", (value, rng.randrange(count)))


def _missing(connection: sqlite3.Connection, rng: random.Random) -> None:
    for _ in range(3):
        key, reason = (rng.choice((*NASTY_TEXTS, "memory", "file")).encode(errors="surrogatepass") for _ in range(2))
        connection.execute("REPLACE INTO missing VALUES (CAST(? AS TEXT), CAST(? AS TEXT))", (key, reason))


def _schema(connection: sqlite3.Connection, rng: random.Random) -> None:
    connection.execute(
        rng.choice(
            (
                "CREATE VIEW more AS SELECT * FROM run",
                "CREATE TRIGGER more AFTER INSERT ON run BEGIN DELETE FROM run; END",
                "CREATE TABLE more (a)",
                "ALTER TABLE text ADD COLUMN more AS (id + 1)",
                "ALTER TABLE run RENAME TO walk",
                "CREATE INDEX more ON text (text)",
                "CREATE VIRTUAL TABLE more USING fts5(a)",
                "DROP TABLE missing",
                "ALTER TABLE window RENAME COLUMN state TO status",
                "PRAGMA user_version = 99",
                f"PRAGMA user_version = {rng.randrange(-1, 6)}",
                "PRAGMA application_id = 7",
                "PRAGMA journal_mode = WAL",
            )
        )
    )


def _a_view_for_a_table(connection: sqlite3.Connection, rng: random.Random) -> None:
    table = rng.choice(("run", "missing", "text", "window"))
    (names,) = connection.execute("SELECT group_concat(name) FROM pragma_table_info(?)", (table,)).fetchone()
    connection.execute(f"ALTER TABLE {table} RENAME TO hidden")
    connection.execute(
        f"CREATE VIEW {table} AS WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n) "
        f"SELECT {names} FROM hidden, n"
    )


FORGERIES: tuple[Forge, ...] = (
    *(_values, _values, _values, _shifted, _bomb, _whole_bomb, _block_fields, _block_gone, _block_doubled),
    *(_texts, _run, _deep_in_run, _windows, _missing),
)


def beside(path: Path, rng: random.Random) -> None:
    """Put something beside a recording that SQLite would read or write."""
    suffix = rng.choice(("-journal", "-journal", "-journal", "-wal", "-shm"))
    other = path.with_name(path.name + suffix)
    way = rng.choice(("random", "hot", "super", "fifo", "folder", "link", "dangling", "empty"))
    victim = path.parent / "victim.txt"
    if way == "fifo":
        os.mkfifo(other)
    elif way == "folder":
        other.mkdir()
    elif way in ("link", "dangling"):
        other.symlink_to(victim if way == "link" else path.parent / "none")
    elif way == "random":
        other.write_bytes(rng.randbytes(rng.randrange(1, 9000)))
    elif way == "empty":
        other.touch()
    else:
        other.write_bytes(_hot_journal(path, rng) + (_super_journal(str(victim)) if way == "super" else b""))


def _hot_journal(path: Path, rng: random.Random) -> bytes:
    """Return a journal that puts pages with changed bytes into a recording."""
    whole = path.read_bytes()
    magic, nonce, pages = bytes.fromhex("d9d505f920a163d7"), rng.randrange(2**31), len(whole) // 4096
    head = magic + struct.pack(">5I", 1, nonce, pages, 512, 4096)
    number = rng.randrange(pages)
    page = bytearray(whole[4096 * number : 4096 * (number + 1)])
    page[rng.randrange(4096)] ^= 1 << rng.randrange(8)
    checksum = (nonce + sum(page[4096 - 200 : 0 : -200])) & 0xFFFFFFFF
    return head.ljust(512, b"\0") + struct.pack(">I", number + 1) + page + struct.pack(">I", checksum)


def _super_journal(victim: str) -> bytes:
    name = victim.encode()
    total = sum(struct.unpack(f"{len(name)}b", name)) & 0xFFFFFFFF
    return (
        struct.pack(">I", 0xFFFFFFFF) + name + struct.pack(">II", len(name), total) + bytes.fromhex("d9d505f920a163d7")
    )


def _block(connection: sqlite3.Connection, rng: random.Random, fields: str) -> tuple:
    rowids = [rowid for (rowid,) in connection.execute("SELECT rowid FROM column_block ORDER BY rowid")]
    return connection.execute(f"SELECT {fields} FROM column_block WHERE rowid = ?", (rng.choice(rowids),)).fetchone()


def _set_data(connection: sqlite3.Connection, rowid: int, data: bytes) -> None:
    connection.execute("UPDATE column_block SET data = ? WHERE rowid = ?", (data, rowid))


def _bindable(value: object) -> object:
    return value.encode(errors="surrogatepass") if isinstance(value, str) else value


def _mark(value: object) -> str:
    return "CAST(? AS TEXT)" if isinstance(value, bytes) and value not in (b"", b"x", b"12") else "?"


def sum_up(connection: sqlite3.Connection) -> None:
    """Let all checksums fit, if the format has any; a forger can do that."""
    connection.text_factory = lambda written: written.decode(errors="surrogatepass")
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'checksum'").fetchone():
        return
    sums: dict[int, list[int]] = {}
    for rowid, *row, data in connection.execute(
        "SELECT rowid, window, kind, part, name, dtype, rows, data FROM column_block"
    ).fetchall():
        with suppress(TypeError):
            crc = checksums.of_row(row, data)
            connection.execute("UPDATE column_block SET crc = ? WHERE rowid = ?", (crc, rowid))
            sums.setdefault(row[0], []).append(crc)
    for (window,) in connection.execute("SELECT ordinal FROM window").fetchall():
        crcs = sums.get(window, [])
        values = (len(crcs), checksums.together(crcs), window)
        connection.execute("UPDATE window SET blocks = ?, crc = ? WHERE ordinal = ?", values)
    for table, columns in (
        ("run", "key, value"),
        ("missing", "collector, reason"),
        ("text", "id, text"),
        ("window", "*"),
    ):
        rows = connection.execute(f"SELECT {columns} FROM {table}").fetchall()
        connection.execute("REPLACE INTO checksum VALUES (?, ?, ?)", (table, len(rows), checksums.of_rows(rows)))


def mutant(source: Path, path: Path, seed: int) -> str:
    """Make the mutant of a recording that has this number, and return its family."""
    rng = random.Random(seed)
    shutil.copy(source, path)
    family = rng.choice(("blind", "blind", "forged", "forged", "beside"))
    {"blind": blind, "forged": forged, "beside": beside}[family](path, rng)
    return family
