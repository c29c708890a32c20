"""Number the requests to MXNet's engine, because their order is not the order in which they run.

Every operator reaches the engine through one of two virtual functions. During a kernels window, the engine object has
a function table of tbdprof's own, in which both are replaced. The replacement adds a number to the request's name, and
MXNet's profiler repeats the name with the times. It also notes the variables that the request reads and writes. It does
not wait for anything.

An executor makes its operators once and requests them again and again. The name of such an operator gets the number of
its first request. The engine runs its requests one after another, as they write the same variables.

The replacements are native code (`native_engine`) or, where that was not built, Python functions (`python_engine`).
"""

import atexit
import ctypes
import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import mxnet as mx

from tbdprof.errors import UnavailableError
from tbdprof.hooks.interrupts import Signals
from tbdprof.hooks.on_mxnet.session import layout
from tbdprof.hooks.on_mxnet.session.forks import follow_forks

SEPARATOR = "#"
_GET = "_ZN5mxnet6Engine3GetEv"
_PUSH_ASYNC = (
    "_ZN5mxnet6engine14ThreadedEngine9PushAsyncESt8functionIFvNS_10RunContextENS0_18CallbackOnCompleteEEENS_7ContextE"
    "RKSt6vectorIPNS0_3VarESaISA_EESE_NS_10FnPropertyEiPKcb"
)
_PUSH = "_ZN5mxnet6engine14ThreadedEngine4PushEPNS0_3OprENS_7ContextEib"
# ThreadedOpr, in words: after its function, two vectors of variables, its property, and its name. The name is a
# std::string that shares its text: a pointer to the text, before which stand length, capacity, and reference count.
READS, WRITES, NAME, _NAME_HEAD = 4, 7, 11, 3
_LONGEST_NAME = 4096
_HEAD = 2  # words before the functions: the offset to the top, and the type information
_PLACES = 24  # more than an engine's virtual functions; what follows its table in the library is readable
_Word = ctypes.c_size_t


class _Ran(Protocol):
    @property
    def number(self) -> int: ...
    @property
    def start_ns(self) -> int: ...
    def _replace(self, *, number: int) -> Any: ...


_Numbered = TypeVar("_Numbered", bound=_Ran)


class Made(NamedTuple):
    """An operator that is requested again and again: its number and name, and the text's address then and now."""

    number: int
    name: str
    before: int
    text: int


class Push(NamedTuple):
    """A request to the engine; `note` is what was known about it."""

    number: int
    name: str
    thread: int
    reads: tuple[int, ...]  # variables that are only read
    writes: tuple[int, ...]
    note: object


class Engine(ABC):
    """Numbers the requests to MXNet's engine from `install` until `remove`."""

    def __init__(self) -> None:
        self.pushes: list[Push] = []  # `collect` completes it
        self._engine = 0
        self._table = 0
        self._signals = Signals()
        self._made: dict[int, Made] = {}  # by the operator's address
        self._requests: dict[int, list[int]] = {}  # of a made operator, by its number

    def install(self) -> None:
        """Replace the functions; raise UnavailableError if the engine is of another kind."""
        try:
            get, push, push_made = (layout.library()[name] for name in (_GET, _PUSH_ASYNC, _PUSH))
        except AttributeError as error:
            raise UnavailableError("this build of MXNet hides its engine: operators cannot be distinguished") from error
        get.restype, get.argtypes = _Word, []
        engine = get()
        table = _Word.from_address(engine).value
        functions = [ctypes.cast(each, ctypes.c_void_p).value or 0 for each in (push, push_made)]
        words = [_Word.from_address(table + 8 * place).value for place in range(-_HEAD, _PLACES)]
        if any(words.count(function) != 1 for function in functions):
            raise UnavailableError("MXNet's engine is not one that runs on threads: operators cannot be distinguished")
        for function, target in zip(functions, self._targets(*functions), strict=True):
            words[words.index(function)] = target
        own = (_Word * len(words))(*words)
        _KEPT.append(own)
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
            for operator, made in self._made.items():
                place = _Word.from_address(operator + 8 * NAME)
                if place.value == made.text:  # the operator may be gone, and another one be in its place
                    place.value = made.before
            self._made.clear()

    def renumbered(self, ran: Sequence[_Numbered]) -> list[_Numbered]:
        """Return what ran with each request's own number, where several requests of one operator had the same."""
        turns = {number: iter(numbers) for number, numbers in self._requests.items()}
        found = []
        for each in sorted(ran, key=lambda one: one.start_ns):
            again = turns.get(each.number)
            found.append(each if again is None else each._replace(number=next(again, -1)))
        return found

    @abstractmethod
    def collect(self) -> str:
        """Complete `pushes`; return what was lost, or ""."""

    @abstractmethod
    def _targets(self, push: int, push_made: int) -> Sequence[int]:
        """Return the addresses of the functions to call in the place of two others."""


def numbered(operator: int, number: int) -> Made:
    """Give a made operator's name a number; return both, with the address of the text before."""
    place = _Word.from_address(operator + 8 * NAME)
    before = place.value
    length = _Word.from_address(before - 8 * _NAME_HEAD).value
    if length > _LONGEST_NAME or (name := ctypes.string_at(before)) != ctypes.string_at(before, length):
        raise UnavailableError("this build of MXNet lays its operators out in another way than 1.9.1")
    text = name + f"{SEPARATOR}{number}".encode()
    # No reference besides the operator's own, or MXNet would copy the text. An operator that ends frees it.
    kept = struct.pack("<QQQ", len(text), len(text), 0) + text + b"\0"
    memory = _malloc(len(kept))
    ctypes.memmove(memory, kept, len(kept))
    place.value = memory + 8 * _NAME_HEAD
    return Made(number, name.decode(), before, place.value)


def _malloc(size: int) -> int:
    """Return the address of memory that C++ may free."""
    malloc = ctypes.CDLL(None).malloc
    malloc.restype, malloc.argtypes = _Word, [_Word]
    return int(malloc(size))


# A table that the engine was given is never freed: a thread may be about to read it.
_KEPT: list[object] = []
