"""Checks the journal beside a recording, and copies the two to where SQLite may undo a commit that was cut short.

The end of a journal may name another file, its super-journal, and SQLite deletes that file, whatever it is
(https://www.sqlite.org/fileformat.html#the_rollback_journal). A recording has one database and no super-journal, so a
journal that names one is not a recording's.
"""

import os
import shutil
import stat
import time
from pathlib import Path

from tbdprof.errors import RecordingFormatError
from tbdprof.facts.file.places import journal_of, mark

MAGIC = bytes.fromhex("d9d505f920a163d7")  # at the head of a journal, and after the name of its super-journal
HEAD_BYTES = 1 << 16  # at most, of a disk's largest sector
PAGE_SHARE = 64  # a page of at least 512 bytes has 8 more in the journal
_TRIES = 40
_PAUSE_S = 0.05


def copied(path: Path, journal: Path, folder: Path) -> Path:
    """Copy a recording and its journal into a private folder and return the copy of the recording.

    If the run goes on and writes meanwhile, the copy is made again. Raise RecordingFormatError if the journal cannot be
    that of this recording.
    """
    copy = folder / "recording.tbd"
    for _ in range(_TRIES):
        before = mark(path), mark(journal)
        try:
            shutil.copyfile(path, copy)  # not through memory: it may be large
            pages = _pages(journal, path)
        except FileNotFoundError:  # the run ended just now and removed its journal
            if not path.exists():
                raise
            shutil.copyfile(path, copy)
            pages = b""
        if before == (mark(path), mark(journal)):
            break
        time.sleep(_PAUSE_S)
    else:
        raise RecordingFormatError(f"{path} is being written all the time: try again when the run has ended")
    journal_of(copy).write_bytes(pages)
    return copy


def _pages(journal: Path, path: Path) -> bytes:
    """Return the content of a journal that can be that of a recording."""
    status = journal.lstat()
    if not stat.S_ISREG(status.st_mode):
        raise RecordingFormatError(f"{journal} is not a plain file: delete it")
    largest = path.stat().st_size
    if status.st_size > largest + largest // PAGE_SHARE + HEAD_BYTES:
        raise RecordingFormatError(f"{journal} is larger than its recording: delete it")
    with open(os.open(journal, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:  # noqa: PTH123
        pages = file.read()
    if pages[-len(MAGIC) :] == MAGIC and len(pages) > len(MAGIC):
        raise RecordingFormatError(f"{journal} names another file, as no journal of a recording does: delete {journal}")
    return pages
