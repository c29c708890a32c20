"""Other threads of the process that run Python code: find them, keep them out for a moment, or wait for them."""

import gc
import inspect
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from tbdprof.collect.core_waits import TASKS, times_of

_POLL_S = 0.001
_MOMENT_NS = 1_000_000  # of a thread's own CPU time
_AWAKE = ("R", "D")  # runs or waits for a core; waits for a disk
_UNDISTURBED_S = 1.0  # far longer than any work done while the others are kept out
_STANDARD_LIBRARY = str(Path(threading.__file__).parent) + os.sep
_LIGHTNINGS = "callbacks.progress.rich_progress"
_BARS = ("tqdm._monitor", f"lightning.pytorch.{_LIGHTNINGS}", f"pytorch_lightning.{_LIGHTNINGS}")  # modules
_PACKAGES = ("site-packages", "dist-packages")


def frames() -> dict[int, FrameType]:
    """Return each other thread's current frame, by thread number; threads that Python did not create count too."""
    me = threading.get_ident()
    return {thread: frame for thread, frame in _current().items() if thread != me}


def are_others() -> bool:
    """Return whether there are other threads."""
    return len(_current()) > 1


def waits(frame: FrameType, within: tuple[str, ...] = ()) -> bool:
    """Return whether a thread is in Python's own library, and not called from files whose paths begin with `within`.

    It waits there and computes nothing with a framework.
    """
    file = frame.f_code.co_filename
    if not file.startswith((_STANDARD_LIBRARY, "<frozen")) or any(each in file for each in _PACKAGES):
        return False
    around: FrameType | None = frame
    while around is not None and not around.f_code.co_filename.startswith(within):
        around = around.f_back
    return around is None


def watches_bars() -> bool:
    """Return whether this is the thread that redraws the progress bars of tqdm or Lightning: it never calls torch.

    It would stay a member for the rest of the program, with a hook on all modules, because it nearly always sleeps.
    Lightning's sleeps in code of its own, so that a window's end would take it for a thread that computes.
    """
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__") not in _BARS:
        frame = frame.f_back
    return frame is not None


def _current() -> dict[int, FrameType]:
    """Return the frames of all threads: this alone finds those that Python did not create.

    No garbage is collected meanwhile. Python holds the lock of its threads, and a finalizer that asks for the same lock
    would wait for ever (mended in later versions of Python: cpython issue 106883).
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return sys._current_frames()  # noqa: SLF001
    finally:
        if collects:
            gc.enable()


@contextmanager
def others_out() -> Iterator[None]:
    """Keep other threads from running Python code, as long as this thread does not wait."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(_UNDISTURBED_S)
    time.sleep(0)  # first let threads run that are already waiting
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def let_others_move(most_s: float) -> None:
    """Wait until no other thread can still be in what it did at the call, if that is short and waits for nothing.

    A thread that has used a millisecond of CPU time since the call is past it, and so is one that sleeps. Where the
    system does not say so, wait a fixed time. Threads that Python does not know count too.
    """
    begun = _running_ns()
    if begun is None:
        time.sleep(most_s / 20)
        return
    until = time.monotonic() + most_s
    while begun and time.monotonic() < until:
        time.sleep(_POLL_S)
        now = _running_ns() or {}
        begun = {task: used for task, used in begun.items() if task in now and now[task] - used < _MOMENT_NS}


def _running_ns() -> dict[str, int] | None:
    """Return the CPU time so far, in ns, of each other thread that does not sleep; None if the system does not say."""
    found, me = dict[str, int](), str(threading.get_native_id())
    if not (TASKS / me / "schedstat").exists():
        return None
    for task in TASKS.iterdir():
        with suppress(OSError):  # it has ended
            state = (task / "stat").read_text().rpartition(")")[2].split()[0]
            if task.name != me and state in _AWAKE:
                found[task.name], _ = times_of(TASKS, task.name)
    return found
