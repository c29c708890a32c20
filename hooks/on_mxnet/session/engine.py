"""Number the requests to MXNet's engine, because their order is not the order in which they run.

Every operator reaches the engine through one virtual function. During a kernels window, the engine object has a
function table of tbdprof's own, in which that function is replaced. The replacement adds a number to the request's
name, and MXNet's profiler repeats the name with the times. It also notes the variables that the request reads and
writes. It does not wait for anything.
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
_HEAD = 2  # words before the functions: the offset to the top, and the type information
_PLACES = 24  # more than an engine's virtual functions; what follows its table in the library is readable
_Word = ctypes.c_size_t
# this, function to run, context, variables read, variables written, property, priority, name, wait
_PushAsync = ctypes.CFUNCTYPE(
    None, _Word, _Word, _Word, _Word, _Word, ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_bool
)


class Push(NamedTuple):
    """A request to the engine; `note` is what the listener knew about it."""

    number: int
    name: str
    thread: int
    reads: tuple[int, ...]  # variables that are only read
    writes: tuple[int, ...]
    note: object


class Engine:
    """Numbers the requests to MXNet's engine from `install` until `remove`."""

    def __init__(self, listen: Callable[[str], object]) -> None:
        """Take a listener; it is called with each name, on the requesting thread, and returns the request's note."""
        self.pushes: list[Push] = []
        self._listen = listen
        self._numbers = itertools.count()
        self._pid = os.getpid()
        self._engine = 0
        self._table = 0
        self._signals = Signals()

    def install(self) -> None:
        """Replace the function; raise UnavailableError if the engine is of another kind."""
        try:
            get, push = layout.library()[_GET], layout.library()[_PUSH_ASYNC]
        except AttributeError as error:
            raise UnavailableError("this build of MXNet hides its engine: operators cannot be distinguished") from error
        get.restype, get.argtypes = _Word, []
        engine = get()
        table = _Word.from_address(engine).value
        function = ctypes.cast(push, ctypes.c_void_p).value or 0
        words = [_Word.from_address(table + 8 * place).value for place in range(-_HEAD, _PLACES)]
        if words.count(function) != 1:
            raise UnavailableError("MXNet's engine is not one that runs on threads: operators cannot be distinguished")
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
        """Restore the engine's own table."""
        atexit.unregister(self.remove)
        try:
            self.wait_before_fork()
        finally:  # also if the wait is interrupted
            self.restore()

    def wait_before_fork(self) -> None:
        """Let the engine's threads leave the callback."""
        if self._engine:
            try:
                mx.nd.waitall()
            except mx.base.MXNetError:
                return  # the failure is raised again where its result is read

    def restore(self) -> None:
        """Restore the engine's own table, whatever work is unfinished."""
        if self._engine:
            _Word.from_address(self._engine).value = self._table
            self._engine = 0
            self._signals.restore()

    def _callback(self, original: Callable[..., None]) -> "ctypes._FuncPointer":
        # The callback is never freed, so it must not keep the notes alive.
        myself = weakref.ref(self)

        @guarded
        def push(engine: int, run: int, context: int, reads: int, writes: int, *how: Any) -> None:
            kind, priority, name, wait = how
            try:
                listener = myself()
                if listener is not None:
                    name = listener._note((name or b"").decode(), reads, writes)  # noqa: SLF001
            finally:  # a lost request would be waited for without end
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


# A callback that the engine was given is never freed: a thread may be about to enter it.
_KEPT: list[object] = []
