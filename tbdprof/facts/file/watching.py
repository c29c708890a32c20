"""Looks at a recording from another process while it may be written; the run that writes it notices nothing."""

import fcntl
import os
from pathlib import Path

from tbdprof.facts.file.places import LOCK, PART, beside, mark


def is_written(path: Path) -> bool | None:
    """Return whether a run has claimed this place and still lives; None: that cannot be seen here.

    The lock is held for some microseconds meanwhile, as by a reader: `placing.claim` waits longer than that.
    """
    try:
        handle = os.open(_beside(path, LOCK), os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return None
    finally:
        os.close(handle)
    return False


def latest(path: Path) -> Path | None:
    """Return the file that has the newest records of the run that has claimed a place, or None if there is none yet.

    That is the file beside its place until it takes that. An older recording, which the run will replace, is no file of
    the run.
    """
    part, target, lock = _beside(path, PART), mark(path), mark(_beside(path, LOCK))
    if part.exists():
        return part
    return None if target is None or (lock is not None and target[1] < lock[1]) else path


def _beside(path: Path, ending: str) -> Path:
    return beside(Path(os.path.realpath(path)), ending)
