"""Other threads of the process that run Python code: whether there are any, and keeping them out for a moment."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_UNDISTURBED_S = 1.0  # far longer than anything that is done with the others kept out


def frames() -> dict[int, FrameType]:
    """Return where each other thread is, by its number, whoever made it."""
    me = threading.get_ident()
    return {thread: frame for thread, frame in sys._current_frames().items() if thread != me}  # noqa: SLF001


def are_others() -> bool:
    """Return whether there are any."""
    return len(sys._current_frames()) > 1  # noqa: SLF001 - the only way to know of all


@contextmanager
def others_out() -> Iterator[None]:
    """Keep other threads from running Python code for as long as this one waits for nothing."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(_UNDISTURBED_S)
    time.sleep(0)  # lets those go first that asked already
    try:
        yield
    finally:
        sys.setswitchinterval(before)
