"""What every reader checks before it reads a file of a data set: the kind of the file, and its size.

Opening a FIFO waits for a writer, and a device may have no end. So neither is opened.
"""

import stat
from pathlib import Path

from tbdprof.errors import DataError
from tbdprof.facts.units import bytes_text

MOST_IN_LIST = 4 << 20  # bytes of a file that lists samples; with 7 bytes a name, as in Pascal VOC, 600,000 samples
MOST_SHOWN = 40  # characters of a value that an error shows

_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def check_file(path: str | Path, most_bytes: int) -> None:
    """Raise DataError for a FIFO, socket or device and for a file with too many bytes, OSError if there is no file."""
    found = Path(path).stat()
    kind = _KINDS.get(stat.S_IFMT(found.st_mode))
    if kind is not None:
        raise DataError(f"{path} is {kind}, not a file: restore it, or remove it")
    if found.st_size > most_bytes:
        raise _too_large(path, bytes_text(found.st_size), most_bytes)


def contents(path: Path, most_bytes: int) -> bytes:
    """Return what is in a file; raises DataError as `check_file` does, and OSError if the file cannot be read."""
    check_file(path, most_bytes)
    with path.open("rb") as file:
        found = file.read(most_bytes + 1)
    if len(found) > most_bytes:  # files of the kernel, as in /proc, state a size of 0
        raise _too_large(path, "more bytes than it states", most_bytes)
    return found


def text(path: Path) -> str:
    """Return the text of a file that lists samples; raises as `contents` does, and DataError if it is not UTF-8."""
    try:
        return contents(path, MOST_IN_LIST).decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is no text in UTF-8: restore it") from error


def shown(value: str) -> str:
    """Return a value in quotes, as an error shows it: no more than its beginning, if it is long."""
    if len(value) <= MOST_SHOWN:
        return repr(value)
    return f"{value[:MOST_SHOWN]!r}… ({len(value)} characters)"


def _too_large(path: str | Path, found: str, most_bytes: int) -> DataError:
    return DataError(f"{path} has {found}, and {bytes_text(most_bytes)} are the most that are read: restore it")
