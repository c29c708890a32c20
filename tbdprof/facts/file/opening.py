"""Opens a recording's file, which may be from anyone: nothing in it is run, nothing is written but a private copy.

SQLite reads the file as one that nothing beside it belongs to and that nobody changes. It is asked for rows of the five
or six tables that the format has, and only after they were found to be these tables and nothing else. If there is a
journal, the run goes on or died in a commit: then SQLite gets a copy of the two, to undo that.
"""

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tbdprof.errors import RecordingFormatError
from tbdprof.facts.file import journal
from tbdprof.facts.file.format import APPLICATION_ID, FORMAT_VERSION, MOST_BYTES, SQLITE_MAGIC, schema
from tbdprof.facts.file.places import journal_of
from tbdprof.facts.file.untrusted import DamagedError
from tbdprof.facts.units import bytes_text

_HEADER_BYTES = 100
_WITHOUT_WRITE_AHEAD_LOG = b"\x01\x01"  # the versions of the file format, at this place of the header
_VERSIONS = slice(18, 20)


@contextmanager
def opened(path: Path) -> Iterator[tuple[sqlite3.Connection, int]]:
    """Open a recording to read it, and yield the connection and the version of its format.

    Raise RecordingFormatError if the file is none of tbdprof's, and DamagedError if its tables are not those of its
    version.
    """
    _check_header(path)
    real = path.resolve()  # a journal lies beside the file itself, not beside a link to it
    beside = journal_of(real)
    with ExitStack() as ends:  # the last one is done first
        if os.path.lexists(beside):
            folder = ends.enter_context(TemporaryDirectory(prefix="tbdprof-"))
            address = f"{journal.copied(real, beside, Path(folder)).as_uri()}?mode=rw"
        else:
            address = f"{real.as_uri()}?mode=ro&immutable=1"
        connection = ends.enter_context(closing(sqlite3.connect(address, uri=True, isolation_level=None)))
        connection.text_factory = _text
        version = _version(connection, path)
        connection.set_authorizer(_allowed)
        if _tables(connection) != _tables_of(version):
            raise DamagedError(f"its tables are not those of format {version}")
        yield connection, version


def _check_header(path: Path) -> None:
    """Raise RecordingFormatError if a file is no recording at first sight."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            sweeps = "the folder of a sweep is for report, compare, figures and observations"
            raise RecordingFormatError(f"{path} is a folder: give the file of a recording; {sweeps}")
        if not stat.S_ISREG(mode):
            raise RecordingFormatError(f"{path} is not a plain file")
        with path.open("rb") as file:
            header = file.read(_HEADER_BYTES)
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise RecordingFormatError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:  # a NUL in its name
        raise RecordingFormatError(f"cannot read {path}: {error}") from error
    if not header:
        raise RecordingFormatError(f"{path} is empty: nothing was recorded")
    if not header.startswith(SQLITE_MAGIC):
        raise RecordingFormatError(f"{path} is not a tbdprof recording")
    if header[_VERSIONS] != _WITHOUT_WRITE_AHEAD_LOG:
        raise DamagedError("its header is not that of a recording")
    if size > MOST_BYTES:
        raise RecordingFormatError(f"{path} is larger than {bytes_text(MOST_BYTES)}, the most that tbdprof reads")


def _version(connection: sqlite3.Connection, path: Path) -> int:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        raise RecordingFormatError(f"{path} is an SQLite file, but not a tbdprof recording")
    if version > FORMAT_VERSION:
        raise RecordingFormatError(
            f"{path} was written by a newer tbdprof (format {version}, this one reads up to {FORMAT_VERSION}): "
            "pip install --upgrade tbdprof"
        )
    if version < 1:
        raise DamagedError(f"there is no format {version}")
    return int(version)


def _text(written: bytes) -> str:
    return written.decode(errors="surrogatepass")


def _allowed(action: int, subject: str | None, name: str | None, *_: str | None) -> int:
    reads = action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ)
    measures = action == sqlite3.SQLITE_FUNCTION and name == "length"
    return sqlite3.SQLITE_OK if reads or measures else sqlite3.SQLITE_DENY


@cache
def _tables_of(version: int) -> frozenset[tuple[str, str, str, str]]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(schema(version))
        return _tables(connection)


def _tables(connection: sqlite3.Connection) -> frozenset[tuple[str, str, str, str]]:
    """Return type, name, table and statement of all that a database has, its indices, views and triggers included."""
    found = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master")
    return frozenset((str(kind), str(name), str(of), " ".join((sql or "").split())) for kind, name, of, sql in found)
