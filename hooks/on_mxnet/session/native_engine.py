"""Number the requests to MXNet's engine with native code (`native/engine.c`): no Python runs at a request."""

import ctypes
import struct
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tbdprof.hooks.interrupts import guarded
from tbdprof.hooks.on_mxnet.session import engine
from tbdprof.hooks.on_mxnet.session.engine import Engine, Push
from tbdprof.hooks.on_mxnet.watch.phases import is_pythons_thread
from tbdprof.hooks.waiting import waits

_Word, _Long = ctypes.c_size_t, ctypes.c_int64
_IsPythons = ctypes.CFUNCTYPE(_Long)
_NameMade = ctypes.CFUNCTYPE(_Word, _Word, _Long)
# As `Request` in native/engine.c, without its first word, which is how many words it takes.
_HEAD, _HEAD_WORDS = struct.Struct("<8x7q4i"), 10
_LOST = "{} requests to MXNet's engine were lost: there was no memory to keep them"


class Request(NamedTuple):
    """A request as the native code keeps it."""

    number: int
    made: int  # the number of the first request of this operator, if it is requested again and again; else -1
    thread: int
    time_ns: int
    note: int  # the thread's number at `tbd_note`
    executor: int  # whose node is requested, by its handle; -1: of none
    node: int
    of_python: int  # whether Python started the thread
    name_bytes: int
    reads: int  # how many variables
    writes: int


class NativeEngine(Engine):
    """Numbers requests in native code; there is one such code in a process."""

    def __init__(self, library: ctypes.CDLL, note: Callable[[Request], object]) -> None:
        """Take a function that returns what was known at a request; `collect` calls it."""
        super().__init__()
        self._library, self._note = library, note
        library.tbd_requests.restype = _Long
        self._callbacks = _IsPythons(_is_pythons), _NameMade(_guarded_method(self._named))
        _KEPT.extend(self._callbacks)

    def collect(self) -> str:
        """Complete `pushes`; return what was lost, or ""."""
        words, lost = np.empty(0, np.uint64), _Long()
        while True:
            where = _Word(words.ctypes.data), _Long(len(words)), ctypes.byref(lost)
            needed = self._library.tbd_requests(*where)
            if needed <= len(words):
                break
            words = np.empty(needed + needed // 8, np.uint64)  # others may make requests meanwhile
        self.pushes += [self._push(*found) for found in _read(words[:needed].data)]
        return _LOST.format(lost.value) if lost.value else ""

    def _push(self, request: Request, name: str, variables: Sequence[int]) -> Push:
        if request.made >= 0:
            self._requests.setdefault(request.made, []).append(request.number)
        reads, writes = tuple(variables[: request.reads]), tuple(variables[request.reads :])
        return Push(request.number, name, request.thread, reads, writes, self._note(request))

    def _targets(self, push: int, push_made: int) -> Sequence[int]:
        self._library.tbd_engine_begin(_Word(push), _Word(push_made), *self._callbacks)
        functions = self._library.tbd_push, self._library.tbd_push_made
        return [ctypes.cast(function, ctypes.c_void_p).value or 0 for function in functions]

    @waits
    def _named(self, operator: int, number: int) -> int:
        """Give a made operator's name a number; return the address of the name's text."""
        made = engine.numbered(operator, number)
        self._made[operator] = made
        return made.text


def _read(words: memoryview) -> Iterator[tuple[Request, str, Sequence[int]]]:
    """Yield requests with their names and variables."""
    text, at = words.cast("B"), 0
    while at < len(words):
        request = Request(*_HEAD.unpack_from(text, 8 * at))
        name = 8 * (at + _HEAD_WORDS)
        end = at + words[at]
        variables = words[end - request.reads - request.writes : end].tolist()
        yield request, bytes(text[name : name + request.name_bytes]).decode(), variables
        at = end


@guarded
def _is_pythons() -> int:
    return is_pythons_thread()


def _guarded_method(named: Callable[[int, int], int | None]) -> Callable[[int, int], int]:
    """Return a function that calls a method, and keeps neither its object nor what that knows of the user's model."""
    method = weakref.WeakMethod(named)

    @guarded
    def name(operator: int, number: int) -> int:
        living = method()
        return 0 if living is None else living(operator, number) or 0

    return name


# A callback that the native code was given is never freed: a thread may be about to enter it.
_KEPT: list[object] = []
