"""What MXNet's engine is asked to run, each request numbered: the order of asking is not the order of running.

Every operator reaches the engine by one virtual function. As long as a window of kernels lasts, the engine object has a
table of functions of its own, in which that place is taken: the request's name gets a number, which MXNet's profiler
repeats with the times, and the variables it reads and writes are noted. Nothing is waited for.
"""

import atexit
import ctypes
import itertools
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import mxnet as mx

from tbdprof.errors import UnavailableError
from tbdprof.hooks.interrupts import Signals, guarded
from tbdprof.hooks.on_mxnet.session import layout
from tbdprof.hooks.on_mxnet.session.forks import follow_forks

SEPARATOR = "#"
_GET = "_ZN5mxnet6Engine3GetEv"
_PUSH_ASYNC = (
    "_ZN5mxnet6engine14ThreadedEngine9PushAsyncESt8functionIFvNS_10RunContextENS0_18CallbackOnCompleteEEENS_7ContextE"
    "RKSt6vectorIPNS0_3VarESaISA_EESE_NS_10FnPropertyEiPKcb"
)
_HEAD = 2  # words before the functions: the offset to the top and the type
_PLACES = 24  # an engine has fewer virtual functions, and what follows its table in the library can be read
_Word = ctypes.c_size_t
# this, what to run, context, variables read, variables written, property, priority, name, wait
_PushAsync = ctypes.CFUNCTYPE(
    None, _Word, _Word, _Word, _Word, _Word, ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_bool
)


class Push(NamedTuple):
    """A request to the engine; `note` is what the listener knew of it."""

    number: int
    name: str
    thread: int
    reads: tuple[int, ...]  # variables that are not written too
    writes: tuple[int, ...]
    note: object


class Engine:
    """Numbers what is asked of MXNet's engine from `install` until `remove`."""

    def __init__(self, listen: Callable[[str], object]) -> None:
        """Take what is told each name, on the thread that asks, and returns what to note with it."""
        self.pushes: list[Push] = []
        self._listen = listen
        self._numbers = itertools.count()
        self._pid = os.getpid()
        self._engine = 0
        self._table = 0
        self._signals = Signals()

    def install(self) -> None:
        """Take the place; raises UnavailableError where the engine is of another kind."""
        try:
            get, push = layout.library()[_GET], layout.library()[_PUSH_ASYNC]
        except AttributeError as error:
            raise UnavailableError("this build of MXNet hides its engine: operators cannot be told apart") from error
        get.restype, get.argtypes = _Word, []
        engine = get()
        table = _Word.from_address(engine).value
        function = ctypes.cast(push, ctypes.c_void_p).value or 0
        words = [_Word.from_address(table + 8 * place).value for place in range(-_HEAD, _PLACES)]
        if words.count(function) != 1:
            raise UnavailableError("MXNet's engine is not one that runs on threads: operators cannot be told apart")
        replaced = self._callback(_PushAsync(function))
        words[words.index(function)] = ctypes.cast(replaced, ctypes.c_void_p).value or 0
        own = (_Word * len(words))(*words)
        _KEPT.extend((replaced, own))
        self._signals.install()
        self._engine, self._table = engine, table
        _Word.from_address(engine).value = ctypes.addressof(own) + 8 * _HEAD
        atexit.register(self.remove)
        follow_forks(self)

    def remove(self) -> None:
        """Put the engine's own table back."""
        atexit.unregister(self.remove)
        try:
            self.wait_before_fork()
        finally:  # an interrupt of the waiting, too
            self.restore()

    def wait_before_fork(self) -> None:
        """Let the engine's threads leave the callback."""
        if self._engine:
            try:
                mx.nd.waitall()
            except mx.base.MXNetError:
                return  # the failure is told again where its result is read

    def restore(self) -> None:
        """Put the engine's own table back, whatever is under way."""
        if self._engine:
            _Word.from_address(self._engine).value = self._table
            self._engine = 0
            self._signals.restore()

    def _callback(self, original: Callable[..., None]) -> "ctypes._FuncPointer":
        # It is never let go, and must not keep what was noted.
        myself = weakref.ref(self)

        @guarded
        def push(engine: int, run: int, context: int, reads: int, writes: int, *how: Any) -> None:
            kind, priority, name, wait = how
            try:
                listener = myself()
                if listener is not None:
                    name = listener._note((name or b"").decode(), reads, writes)  # noqa: SLF001
            finally:  # a request that is lost would be waited for without end
                original(engine, run, context, reads, writes, kind, priority, name, wait)

        return _PushAsync(push)

    def _note(self, name: str, reads: int, writes: int) -> bytes:
        """Note a request; return its name with its number."""
        number = next(self._numbers)
        variables = _vector(reads), _vector(writes)
        self.pushes.append(Push(number, name, threading.get_ident(), *variables, self._listen(name)))
        return f"{name}{SEPARATOR}{number}".encode()


def _vector(address: int) -> tuple[int, ...]:
    """Return the pointers in a std::vector."""
    begin, end = _Word.from_address(address).value, _Word.from_address(address + 8).value
    return tuple((_Word * ((end - begin) // 8)).from_address(begin)) if end > begin else ()


# What the engine was once given to call is never let go: a thread may be on its way into it.
_KEPT: list[object] = []
