"""What lies beside a recording while it is written, and why a file cannot be written."""

import errno
import os
import shutil
import sqlite3
import tempfile
from contextlib import suppress
from pathlib import Path

LOCK, PART = "lock", "part"
ROOM_BYTES = 1 << 20  # more than what the facts of a run take, twice: in the file and in its journal
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def beside(target: Path, ending: str) -> Path:
    """Return the hidden file beside a target that has this ending."""
    return target.with_name(f".{target.name}.{ending}")


def journal_of(path: Path) -> Path:
    """Return the file in which SQLite keeps what a commit replaces."""
    return path.with_name(f"{path.name}-journal")


def clear(target: Path) -> None:
    """Remove what was written beside a target and did not take its place; what cannot be removed stays."""
    part = beside(target, PART)
    for each in (journal_of(part), part):
        with suppress(OSError):
            each.unlink(missing_ok=True)
    shutil.rmtree(part, ignore_errors=True)  # if it is a folder


def take_place(part: Path, target: Path) -> None:
    """Rename a file or folder that was written; the journal of an older file would be taken for that of the new one."""
    if part.is_file():
        journal_of(target).unlink(missing_ok=True)
    part.replace(target)


def give_room(target: Path) -> None:
    """Give the room that the lock's file has back to the disk."""
    with suppress(OSError):
        os.truncate(beside(target, LOCK), 0)


def mark(path: Path) -> tuple[int, int, int] | None:
    """Return what changes when a file is written or another one takes its name, or None if there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def reason(error: sqlite3.Error | OSError, path: Path) -> str:
    """Return why a file cannot be written."""
    if isinstance(error, sqlite3.Error):
        if "disk" not in str(error):
            return str(error)
        found = _refused(path)  # SQLite does not pass on what the system said
        return f"the disk is full ({found})" if found else str(error).replace("database or disk", "the disk")
    said = error.strerror or str(error)
    return f"the disk is full ({said})" if error.errno in _FULL else said


def _refused(path: Path) -> str | None:
    """Return what the system says if no file like this one may grow, or None."""
    try:
        size = path.stat().st_size if path.exists() else 0
        with tempfile.TemporaryFile(dir=path.parent) as trial:
            os.posix_fallocate(trial.fileno(), size, ROOM_BYTES)
    except OSError as error:
        return error.strerror if error.errno in _FULL else None
    return None
