"""Puts a recording at a path: one writer at a time, and what is there stays until there is more to keep.

While a recording is written, these lie beside it: `.NAME.part`, until it takes its place, and `.NAME.lock`. The lock
ends with the process that holds it, in whatever way that ends, so a file `.NAME.lock` that is left over locks nothing.
It also takes some room on the disk, which is given back when the disk is full: then the recording can say so.
"""

import errno
import fcntl
import os
import sqlite3
import stat
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tbdprof.errors import UsageError
from tbdprof.facts.file.places import LOCK, PART, ROOM_BYTES, beside, clear, mark, reason, take_place
from tbdprof.facts.file.writing import Writer
from tbdprof.facts.recording import Recording

ELSEWHERE = "choose another place with -o"
LOOKS, LOOK_S = 50, 0.02  # a reader takes microseconds to look at a lock, and longer on a busy machine
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # of some network file systems


class Claim:
    """The right to write at a path, until `release` or the end of the process; a context manager."""

    def __init__(self, path: Path, handle: int) -> None:
        self.path = path  # as the user names it
        self.target = Path(os.path.realpath(path))
        self.handle = handle  # of the lock: a process that inherits it keeps the claim where this one is killed
        self._before = mark(path)
        self._release = weakref.finalize(self, _release, self.target, handle)
        _claims.add(self)
        clear(self.target)

    @property
    def is_kept(self) -> bool:
        """Return whether a new recording took the place since."""
        return mark(self.target) not in (None, self._before)

    def release(self) -> None:
        """Let others write here, and remove what has not taken its place."""
        self._release()

    def leave(self) -> None:
        """Give up this process's share of the lock: its parent holds it."""
        if self._release.detach() is not None:
            os.close(self.handle)

    def __enter__(self) -> "Claim":
        """Return the claim."""
        return self

    def __exit__(self, *_: object) -> None:
        """Release the place."""
        self.release()


_claims: "weakref.WeakSet[Claim]" = weakref.WeakSet()


def _leave_all() -> None:
    for claimed in list(_claims):
        claimed.leave()


os.register_at_fork(after_in_child=_leave_all)


def claim(path: Path, *, force: bool, room_bytes: int = ROOM_BYTES) -> Claim:
    """Claim a path for a new recording; raises UsageError, before any work is done, if none can be written there.

    A link stands for the file that it points at. The claim keeps `room_bytes` on the disk, if there are so many.
    """
    check(path, force=force)
    try:
        claimed = Claim(path, _locked(beside(Path(os.path.realpath(path)), LOCK), room_bytes))
    except BlockingIOError:
        raise UsageError(f"{path} is being written by another run: choose another name with -o") from None
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}; {ELSEWHERE}") from error
    try:
        check(path, force=force)  # another run may have ended meanwhile
    except UsageError:
        claimed.release()
        raise
    return claimed


def check(path: Path, *, force: bool = False) -> None:
    """Raise UsageError unless there is no file at a path, or with `force` a plain file that may be written."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        if path.is_symlink():
            raise UsageError(f"{path} is a link to what does not exist: {ELSEWHERE}") from None
        return
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}; {ELSEWHERE}") from error
    if stat.S_ISDIR(mode):
        raise UsageError(f"{path} is a folder: give a file name, such as {path / 'run.tbd'}")
    if not stat.S_ISREG(mode):
        raise UsageError(f"{path} is a device, pipe or socket and cannot hold a recording: {ELSEWHERE}")
    if not force:
        raise UsageError(f"{path} exists: choose another name with -o, or overwrite it with --force")
    if not os.access(path, os.W_OK):
        raise UsageError(f"cannot write {path}: {os.strerror(errno.EACCES)}; {ELSEWHERE}")


def save(recording: Recording, path: Path, *, force: bool = False) -> None:
    """Write a whole recording to a new file; raises UsageError where it exists or cannot be written.

    A reader meanwhile, or a crash, finds the old file or the new one.
    """
    with claim(path, force=force, room_bytes=0) as claimed, _replaced(claimed) as part:
        _write(recording, part)


def write_anew(recording: Recording, path: Path) -> None:
    """Replace a recording's file; raises UsageError where it cannot be written. Then the file is as it was."""
    save(recording, path, force=True)


@contextmanager
def new(path: Path, *, force: bool = False) -> Iterator[Path]:
    """Yield where to write a new file or folder, which takes its place when the block ends.

    Raise UsageError if something is there already, or if it cannot be written. With `force` a file may be there, which
    the new one replaces.
    """
    if os.path.lexists(path) and not force:
        raise UsageError(f"{path} exists: choose another name with -o")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}; {ELSEWHERE}") from error
    with claim(path, force=force, room_bytes=0) as claimed, _replaced(claimed) as part:
        yield part


def _write(recording: Recording, path: Path) -> None:
    writer = Writer(path, recording)
    try:
        for window in recording.windows:
            writer.append(window, window.tables)
        writer.close()
    finally:
        writer.abandon()  # where an error kept it open


@contextmanager
def _replaced(claimed: Claim) -> Iterator[Path]:
    """Yield where to write what takes a claimed place when the block ends; raises UsageError where it cannot."""
    part = beside(claimed.target, PART)
    try:
        yield part
        take_place(part, claimed.target)
    except (sqlite3.Error, OSError) as error:
        raise UsageError(f"cannot write {claimed.path}: {reason(error, part)}; {ELSEWHERE}") from error
    finally:
        clear(claimed.target)


def _locked(path: Path, room_bytes: int) -> int:
    """Return the handle of a lock's file that was locked; raises BlockingIOError if another one has it."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            _lock_soon(handle)
            os.utime(handle)  # so that a reader can tell an older recording from this run's
            if os.fstat(handle).st_ino == path.stat().st_ino:
                _keep_room(handle, room_bytes)
                return handle
        except FileNotFoundError:
            pass  # its holder removed it before it let it go
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _keep_room(handle: int, room_bytes: int) -> None:
    try:
        if room_bytes:
            os.posix_fallocate(handle, 0, room_bytes)
    except OSError:  # there is not so much; then a full disk is reported, but perhaps not in the file
        os.ftruncate(handle, 0)


def _lock_soon(handle: int) -> None:
    """Lock a lock's file, which a reader may have for a moment, to see whether it is locked (`file.watching`)."""
    for _ in range(LOOKS):
        try:
            lock(handle)
        except BlockingIOError:
            time.sleep(LOOK_S)
        else:
            return
    lock(handle)


def lock(handle: int, *, waits: bool = False) -> None:
    """Lock an open file until it is closed; raise BlockingIOError if another process has it, unless this one waits.

    On a file system without locks nothing is locked, and nobody is refused.
    """
    try:
        fcntl.flock(handle, fcntl.LOCK_EX if waits else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise


def _release(target: Path, handle: int) -> None:
    clear(target)
    with suppress(OSError):
        beside(target, LOCK).unlink()
    os.close(handle)
