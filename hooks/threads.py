"""Other threads of the process that run Python code: find them, and keep them out for a moment."""

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
    return {thread: frame for thread, frame in sys._current_frames().items() if thread != me}  # noqa: SLF001


def are_others() -> bool:
    """Return whether there are other threads."""
    return len(sys._current_frames()) > 1  # noqa: SLF001 - the only way to find all of them


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
