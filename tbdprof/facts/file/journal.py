"""Checks the journal that a process leaves if it dies amid a commit, and copies it to where SQLite may undo that.

The end of a journal may name another file, its super-journal, and SQLite deletes that file, whatever it is
(https://www.sqlite.org/fileformat.html#the_rollback_journal). A recording has one database and no super-journal, so a
journal that names one is not a recording's.
"""

import os
import stat
from pathlib import Path

from tbdprof.errors import RecordingFormatError

MAGIC = bytes.fromhex("d9d505f920a163d7")  # at the head of a journal, and after the name of its super-journal
HEAD_BYTES = 1 << 16  # at most, of a disk's largest sector
PAGE_SHARE = 64  # a page of at least 512 bytes has 8 more in the journal


def check_plain(journal: Path) -> None:
    """Raise RecordingFormatError where a journal is a link, a FIFO or a folder: SQLite would open it."""
    if os.path.lexists(journal) and not stat.S_ISREG(journal.lstat().st_mode):
        raise RecordingFormatError(f"{journal} is not a plain file: delete it")


def copied(path: Path, journal: Path, folder: Path) -> Path:
    """Copy a recording and its journal into a private folder and return the copy of the recording.

    Raises RecordingFormatError where the plain journal cannot be that of this recording.
    """
    largest = path.stat().st_size
    largest += largest // PAGE_SHARE + HEAD_BYTES
    if journal.stat().st_size > largest:
        raise RecordingFormatError(f"{journal} is larger than its recording: delete it")
    pages = journal.read_bytes()
    if pages[-len(MAGIC) :] == MAGIC and len(pages) > len(MAGIC):
        raise RecordingFormatError(f"{journal} names another file, as no journal of a recording does: delete {journal}")
    copy = folder / "recording.tbd"
    copy.write_bytes(path.read_bytes())
    copy.with_name(f"{copy.name}-journal").write_bytes(pages)
    return copy
