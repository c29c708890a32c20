"""How a run ends before it is complete: by an exception, or by a signal that becomes one."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class Terminated(KeyboardInterrupt):
    """Report that a signal is to end the process; like an interrupt, it passes what catches each `Exception`."""

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.number = number


def reason(error: BaseException | type[BaseException]) -> str:
    """Return why a run is not complete that an exception ended."""
    if isinstance(error, Terminated):
        return str(error)
    return error.__name__ if isinstance(error, type) else type(error).__name__


def number(error: KeyboardInterrupt) -> int:
    """Return the signal that an interrupt stands for."""
    return error.number if isinstance(error, Terminated) else signal.SIGINT


@contextmanager
def raised() -> Iterator[None]:
    """Raise `Terminated` in the block when SIGTERM or SIGHUP comes, once: what is then saved is not cut short.

    A signal that is ignored (nohup) or that other code handles stays so.
    """
    ours = [number for number in SIGNALS if _is_free(number)]

    def end(number: int, frame: FrameType | None) -> None:
        for each in ours:
            signal.signal(each, signal.SIG_IGN)
        raise Terminated(number)

    for each in ours:
        signal.signal(each, end)
    try:
        yield
    finally:
        for each in ours:
            signal.signal(each, signal.SIG_DFL)


def _is_free(number: int) -> bool:
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and signal.getsignal(number) is signal.SIG_DFL
