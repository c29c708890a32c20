"""Other threads of the process that run Python code: find them, and keep them out for a moment."""

import gc
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_UNDISTURBED_S = 1.0  # far longer than any work done while the others are kept out


def frames() -> dict[int, FrameType]:
    """Return each other thread's current frame, by thread number; threads that Python did not create count too."""
    me = threading.get_ident()
    return {thread: frame for thread, frame in _current().items() if thread != me}


def are_others() -> bool:
    """Return whether there are other threads."""
    return len(_current()) > 1


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
