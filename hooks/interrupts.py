"""Delay signals that come while C code waits for a Python callback.

Python may run a signal handler at any point of the program, for example the one that raises KeyboardInterrupt. If that
point lies within a callback, the exception is lost where the callback returns to C, and the callback does not finish
what its caller needs. So such a signal is sent again a moment later.
"""

import os
import signal
import threading
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, TypeVar

_LATER_S = 0.01
_GUARDED: set[CodeType] = set()
_Function = TypeVar("_Function", bound=Callable[..., Any])
_Handler = Callable[[int, FrameType | None], Any]


def guarded(function: _Function) -> _Function:
    """Let no handler run within a function, or within what it calls, while `Signals` are installed."""
    _GUARDED.add(function.__code__)
    return function


class Signals:
    """Wraps the handlers written in Python from `install` until `restore`, if called in the main thread."""

    def __init__(self) -> None:
        self._before: dict[int, _Handler] = {}
        self._ours: dict[int, _Handler] = {}

    def install(self) -> None:
        """Wrap each handler that is set."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in signal.valid_signals():
            handler = signal.getsignal(number)
            if callable(handler):
                self._before[number], self._ours[number] = handler, _before(handler)
                signal.signal(number, self._ours[number])

    def restore(self) -> None:
        """Restore the handlers, except where other code has set another handler meanwhile."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number, handler in self._before.items():
            if signal.getsignal(number) is self._ours[number]:
                signal.signal(number, handler)
        self._before.clear()


def _before(handler: _Handler) -> _Handler:
    def handle(number: int, frame: FrameType | None) -> Any:
        if not _is_guarded(frame):
            return handler(number, frame)
        again = threading.Timer(_LATER_S, os.kill, (os.getpid(), number))
        again.daemon = True
        again.start()
        return None

    return handle


def _is_guarded(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code in _GUARDED:
            return True
        frame = frame.f_back
    return False
