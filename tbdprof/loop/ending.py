"""How a run ends before it is complete: by an exception, or by a signal that becomes one."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGHUP)
OF_SIGNAL = 128  # a shell adds this to the number of the signal that ended a process
_LATER_S = 0.05
_Handler = Callable[[int, FrameType | None], None]


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

    No signal raises within an import, SIGINT neither: an exception there lets the C++ of a framework abort. It comes
    again a moment later. A signal that is ignored (nohup) or that other code handles stays so.
    """
    ours = [number for number in SIGNALS if _handler(number) is signal.SIG_DFL]

    def end(number: int, frame: FrameType | None) -> None:
        if _is_importing(frame):
            _send_again(number)
            return
        for each in ours:
            signal.signal(each, signal.SIG_IGN)
        raise Terminated(number)

    def interrupt(number: int, frame: FrameType | None) -> None:
        if _is_importing(frame):
            _send_again(number)
        else:
            signal.default_int_handler(number, frame)

    set_here: dict[int, _Handler] = dict.fromkeys(ours, end)
    if _handler(signal.SIGINT) is signal.default_int_handler:
        set_here[signal.SIGINT] = interrupt
    before = {number: signal.signal(number, handler) for number, handler in set_here.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _handler(number: int) -> object:
    """Return what handles a signal; None outside of the main thread, where no handler can be set."""
    return signal.getsignal(number) if threading.current_thread() is threading.main_thread() else None


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _send_again(number: int) -> None:
    timer = threading.Timer(_LATER_S, os.kill, (os.getpid(), number))
    timer.daemon = True
    timer.start()
