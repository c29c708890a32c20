"""Torch's own functions by which a thread joins a profiler's session and leaves it."""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

_SYMBOLS = (
    "_ZN5torch8autograd8profiler29isProfilerEnabledInMainThreadEv",
    "_ZN5torch8autograd8profiler27enableProfilerInChildThreadEv",
    "_ZN5torch8autograd8profiler28disableProfilerInChildThreadEv",
    "_ZN2at25clearThreadLocalCallbacksEv",
    "_ZN5torch8profiler4impl17ProfilerStateBase3getEb",
    "_ZN5torch8profiler4impl17ProfilerStateBase14removeCallbackEv",
)
_POINTER = ctypes.c_void_p


@dataclass(frozen=True, slots=True)
class Calls:
    """Torch's own functions; called at the wrong time they throw, which ends the process."""

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
        found = [getattr(library, symbol) for symbol in _SYMBOLS]
    except AttributeError:  # another build
        return None
    kinds = (ctypes.c_bool, ()), (None, ()), (None, ()), (None, ()), (_POINTER, (ctypes.c_bool,)), (None, (_POINTER,))
    for each, (result, arguments) in zip(found, kinds, strict=True):
        each.restype, each.argtypes = result, arguments
    return Calls(*found)
