"""Number the requests to MXNet's engine with Python functions: the way without the native code."""

import ctypes
import itertools
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from tbdprof.hooks.interrupts import guarded
from tbdprof.hooks.on_mxnet.session import engine
from tbdprof.hooks.on_mxnet.session.engine import NAME, READS, SEPARATOR, WRITES, Engine, Push
from tbdprof.hooks.waiting import waits

_Word = ctypes.c_size_t
# this, function to run, context, variables read, variables written, property, priority, name, wait
_PushAsync = ctypes.CFUNCTYPE(
    None, _Word, _Word, _Word, _Word, _Word, ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_bool
)
# this, operator, context, priority, whether the profiler records it
_PushMade = ctypes.CFUNCTYPE(None, _Word, _Word, ctypes.c_uint64, ctypes.c_int, ctypes.c_bool)


class _Thread(threading.local):
    inside = False  # the first function, which makes an operator and calls the second


class PythonEngine(Engine):
    """Numbers requests in Python."""

    def __init__(self, listen: Callable[[str], object]) -> None:
        """Take a listener; it is called with each name, on the requesting thread, and returns the request's note."""
        super().__init__()
        self._listen = listen
        self._numbers = itertools.count()
        self._here = _Thread()

    def collect(self) -> str:
        """Do nothing: `pushes` is complete."""
        return ""

    def _targets(self, push: int, push_made: int) -> Sequence[int]:
        callbacks = self._callback(_PushAsync(push)), self._callback_of_made(_PushMade(push_made))
        _KEPT.extend(callbacks)
        return [ctypes.cast(callback, ctypes.c_void_p).value or 0 for callback in callbacks]

    def _callback(self, original: Callable[..., None]) -> "ctypes._FuncPointer":
        # The callback is never freed, so it must not keep the notes alive.
        myself = weakref.ref(self)

        @guarded
        def push(this: int, run: int, context: int, reads: int, writes: int, *how: Any) -> None:
            kind, priority, name, wait = how
            listener = myself()
            try:
                if listener is not None:
                    name = listener._note(name or b"", reads, writes) or name  # noqa: SLF001
                    listener._here.inside = True  # noqa: SLF001
            finally:  # a lost request would be waited for without end
                original(this, run, context, reads, writes, kind, priority, name, wait)
                if listener is not None:
                    listener._here.inside = False  # noqa: SLF001

        return _PushAsync(push)

    def _callback_of_made(self, original: Callable[..., None]) -> "ctypes._FuncPointer":
        myself = weakref.ref(self)

        @guarded
        def push(this: int, operator: int, context: int, priority: int, profiled: bool) -> None:
            try:
                listener = myself()
                if listener is not None and not listener._here.inside:  # noqa: SLF001
                    listener._note_made(operator)  # noqa: SLF001
            finally:
                original(this, operator, context, priority, profiled)

        return _PushMade(push)

    @waits
    def _note_made(self, operator: int) -> None:
        """Note a request of an operator that was made before; number the operator at its first request."""
        number = next(self._numbers)
        made = self._made.get(operator)
        if made is None or _Word.from_address(operator + 8 * NAME).value != made.text:
            made = engine.numbered(operator, number)
            self._made[operator] = made
        self._requests.setdefault(made.number, []).append(number)
        variables = _vector(operator + 8 * READS), _vector(operator + 8 * WRITES)
        self.pushes.append(Push(number, made.name, threading.get_ident(), *variables, self._listen(made.name)))

    @waits
    def _note(self, given: bytes, reads: int, writes: int) -> bytes:
        """Note a request; return its name with its number."""
        name, number = given.decode(), next(self._numbers)
        variables = _vector(reads), _vector(writes)
        self.pushes.append(Push(number, name, threading.get_ident(), *variables, self._listen(name)))
        return f"{name}{SEPARATOR}{number}".encode()


def _vector(address: int) -> tuple[int, ...]:
    """Return the pointers in a std::vector."""
    begin, end = _Word.from_address(address).value, _Word.from_address(address + 8).value
    return tuple((_Word * ((end - begin) // 8)).from_address(begin)) if end > begin else ()


# A callback that the engine was given is never freed: a thread may be about to enter it.
_KEPT: list[object] = []
