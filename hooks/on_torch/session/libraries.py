"""Read and set variables of torch's compiled libraries, and call their functions by symbol name."""

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

import torch

from tbdprof.collect.core_waits import TASKS

_LIBRARIES = ("libc10.so", "libc10.dylib", "c10.dll")
_PROFILER_LOG_LEVEL = "KINETO_LOG_LEVEL"
LOG_LEVEL, ERROR = "FLAGS_caffe2_log_level", 2
_KINETO = ("_ZN9libkineto12ConfigLoader8instanceEv", "_ZN9libkineto12ConfigLoader10stopThreadEv")
_OF_THREADS = (
    "_ZN5torch8autograd8profiler29isProfilerEnabledInMainThreadEv",
    "_ZN5torch8autograd8profiler27enableProfilerInChildThreadEv",
    "_ZN5torch8autograd8profiler28disableProfilerInChildThreadEv",
    "_ZN2at25clearThreadLocalCallbacksEv",
    "_ZN5torch8profiler4impl17ProfilerStateBase3getEb",
    "_ZN5torch8profiler4impl17ProfilerStateBase14removeCallbackEv",
)
_Number = TypeVar("_Number", ctypes.c_bool, ctypes.c_int)


@cache
def variable(kind: type[_Number], name: str) -> _Number | None:
    """Return a variable of torch's core library, or None if the library has none of that name."""
    folder = Path(torch.__file__).parent / "lib"
    path = next((folder / library for library in _LIBRARIES if (folder / library).exists()), None)
    try:
        return None if path is None else kind.in_dll(ctypes.CDLL(str(path)), name)
    except (OSError, ValueError):
        return None


@contextmanager
def quiet_log() -> Iterator[None]:
    """Keep torch's core from writing warnings to stderr."""
    level = variable(ctypes.c_int, LOG_LEVEL)
    if level is None:
        yield
        return
    before = level.value
    level.value = max(before, ERROR)
    try:
        yield
    finally:
        level.value = before


@contextmanager
def quiet_profiler() -> Iterator[None]:
    """Keep torch's profiler from writing to stderr: its library reads the log level when it is first used."""
    before = os.environ.get(_PROFILER_LOG_LEVEL)
    os.environ[_PROFILER_LOG_LEVEL] = before or "9"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_PROFILER_LOG_LEVEL]


def native_threads() -> frozenset[str]:
    """Return this process's threads, as the system names them."""
    return frozenset(os.listdir(TASKS))  # noqa: PTH208 - names alone are needed


def stop_polling(before: frozenset[str]) -> None:
    """End the thread in which torch's profiler waits for outside requests: it makes a forked child hang at its exit.

    Do so only if a thread has begun since `before`. A process that was forked from one with such a thread has none:
    it would hang or abort if it waited for its end.
    """
    if native_threads() <= before:
        return
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
    try:
        instance, stop = (getattr(library, name) for name in _KINETO)
    except AttributeError:  # a build without that thread
        return
    instance.restype, stop.argtypes, stop.restype = ctypes.c_void_p, [ctypes.c_void_p], None
    stop(instance())


@dataclass(frozen=True, slots=True)
class Calls:
    """How a thread joins a profiler's session; called at the wrong time these throw, which ends the process."""

    is_on: Callable[[], bool]
    join: Callable[[], None]
    leave: Callable[[], None]
    forget: Callable[[], None]  # stop observing this thread's operators
    state: Callable[[bool], int | None]  # the session of all threads, or of this thread
    drop: Callable[[int | None], None]  # make a session drop the callback of the thread that joined last


def thread_calls() -> Calls | None:
    """Return them, or None if this build of torch lacks one."""
    library = ctypes.PyDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
    try:
        found = [getattr(library, symbol) for symbol in _OF_THREADS]
    except AttributeError:  # another build
        return None
    kinds = (
        (ctypes.c_bool, ()),
        (None, ()),
        (None, ()),
        (None, ()),
        (ctypes.c_void_p, (ctypes.c_bool,)),
        (None, (ctypes.c_void_p,)),
    )
    for each, (result, arguments) in zip(found, kinds, strict=True):
        each.restype, each.argtypes = result, arguments
    return Calls(*found)


def stop_observing() -> None:
    """Let no operator that begins from now on, in any thread, be recorded by the session of all threads."""
    calls = thread_calls()
    if calls is not None and (session := calls.state(True)) is not None:
        calls.drop(session)
