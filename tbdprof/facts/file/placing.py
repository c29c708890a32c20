"""Puts a recording at a path: makes sure that it can be written there, and replaces a file in one step."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from tbdprof.errors import UsageError
from tbdprof.facts.file.writing import Writer
from tbdprof.facts.recording import Recording


def claim(path: Path, *, force: bool) -> None:
    """Make sure a new recording can be written at a path; raises UsageError before any work is done."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder: give a file name, such as {path / 'run.tbd'}")
    if path.exists() and not force:
        raise UsageError(f"{path} exists: choose another name with -o, or overwrite it with --force")
    try:
        with path.open("ab"):
            pass
        path.unlink()
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}; choose another place with -o") from error


def save(recording: Recording, path: Path, *, force: bool = False) -> None:
    """Write a whole recording to a new file; raises UsageError where it exists or cannot be written."""
    claim(path, force=force)
    try:
        with closing(Writer(path, recording)) as writer:
            for window in recording.windows:
                writer.append(window, window.tables)
    except (sqlite3.Error, OSError) as error:
        raise UsageError(f"cannot write {path}: {error}") from error


def write_anew(recording: Recording, path: Path) -> None:
    """Replace a recording's file in one step: a reader meanwhile, or a crash, finds the old file or the new one.

    Raises UsageError where it cannot be written; then the file is as it was.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        save(recording, beside, force=True)
        beside.replace(path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error
    finally:
        beside.unlink(missing_ok=True)
