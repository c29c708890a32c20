"""What is set for a torch process and what is asked of it: accounting, devices."""

import ctypes
import gc
import os
import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TypeVar

import torch

from tbdprof.collect import host
from tbdprof.errors import UnavailableError, UsageError

_LIBRARIES = ("libc10.so", "libc10.dylib", "c10.dll")
_FLAG = "FLAGS_caffe2_report_cpu_memory_usage"
_PROFILER_LOG_LEVEL = "KINETO_LOG_LEVEL"
_LOG_LEVEL, _ERROR = "FLAGS_caffe2_log_level", 2
_KINETO = ("_ZN9libkineto12ConfigLoader8instanceEv", "_ZN9libkineto12ConfigLoader10stopThreadEv")
_Number = TypeVar("_Number", ctypes.c_bool, ctypes.c_int)
_OUT_OF_MEMORY = re.compile(
    r"tried to allocate \S+( \S*B)?|can't allocate memory|bad_alloc"
    r"|CUDA error: out of memory|CU\w+_STATUS_ALLOC_FAILED",  # of what the driver or a library asked for by itself
    re.I,
)


def accounting_flag() -> ctypes.c_bool | None:
    """Return torch's switch for counting all CPU memory at all times; None: it has none."""
    return _variable(ctypes.c_bool, _FLAG)


def count_quietly(flag: ctypes.c_bool) -> None:
    """Switch torch's accounting on, with a block older than it freed unheard.

    Of such frees torch writes the first in every thousand to stderr, which says nothing that is wrong with the script.
    """
    level = _variable(ctypes.c_int, _LOG_LEVEL)
    if level is None or flag.value:
        flag.value = True
        return
    older, before = torch.empty(1, device="cpu"), level.value
    flag.value, level.value = True, max(before, _ERROR)
    del older
    level.value = before


@contextmanager
def quiet_log() -> Iterator[None]:
    """Keep torch's core from writing warnings to stderr."""
    level = _variable(ctypes.c_int, _LOG_LEVEL)
    if level is None:
        yield
        return
    before = level.value
    level.value = max(before, _ERROR)
    try:
        yield
    finally:
        level.value = before


@cache
def _variable(kind: type[_Number], name: str) -> _Number | None:
    """Return a variable of torch's core library; None: it has none of the name."""
    folder = Path(torch.__file__).parent / "lib"
    path = next((folder / library for library in _LIBRARIES if (folder / library).exists()), None)
    try:
        return None if path is None else kind.in_dll(ctypes.CDLL(str(path)), name)
    except (OSError, ValueError):
        return None


def stop_polling() -> None:
    """End the thread in which torch's profiler waits for orders from outside: a forked child hangs at its exit else."""
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
    try:
        instance, stop = (getattr(library, name) for name in _KINETO)
    except AttributeError:  # a build without it
        return
    instance.restype, stop.argtypes, stop.restype = ctypes.c_void_p, [ctypes.c_void_p], None
    stop(instance())


@contextmanager
def quiet_profiler() -> Iterator[None]:
    """Keep torch's profiler from writing to stderr: its library reads the level when first used."""
    before = os.environ.get(_PROFILER_LOG_LEVEL)
    os.environ[_PROFILER_LOG_LEVEL] = before or "9"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_PROFILER_LOG_LEVEL]


def choose_device(wanted: str) -> str:
    """Return "cpu" or "cuda:N" for auto, cpu, cuda or cuda:N."""
    if wanted == "auto":
        return "cuda:0" if torch.cuda.is_available() else "cpu"
    if wanted == "cpu":
        return "cpu"
    match = re.fullmatch(r"cuda(?::(\d+))?", wanted)
    if match is None:
        raise UsageError(f"unknown device {wanted!r}: choose auto, cpu, cuda or cuda:N")
    number = int(match[1] or 0)
    if not torch.cuda.is_available():
        raise UnavailableError("torch sees no CUDA device: choose --device cpu")
    if number >= torch.cuda.device_count():
        last = torch.cuda.device_count() - 1
        raise UnavailableError(f"torch sees no device {wanted}: the last one is cuda:{last}")
    return f"cuda:{number}"


def device_name(device: str) -> str:
    """Return what the device calls itself."""
    if device != "cpu":
        return torch.cuda.get_device_name(device)
    return host.processor_name() or platform.processor()


def peak_bytes(device: str) -> int | None:
    """Return the CUDA allocator's peak over the whole run; None: nothing counts it."""
    if device == "cpu" or not _cuda_is_on():
        return None
    return torch.cuda.max_memory_allocated(device)


def synchronize(device: str) -> None:
    """Wait for the device; the CPU's operators return when they are done."""
    if device != "cpu" and _cuda_is_on():
        torch.cuda.synchronize(device)


def release_workspaces() -> None:
    """Have cuBLAS ask anew for the workspaces it keeps: a window then shows which operator did."""
    if _cuda_is_on():
        # Builds without CUDA do not have it.
        from torch._C import _cuda_clearCublasWorkspaces

        torch.cuda.synchronize()
        _cuda_clearCublasWorkspaces()


def out_of_memory(error: BaseException) -> str | None:
    """Return the sentence that tells what was asked for, if the error means out of memory."""
    text = " ".join(str(error).split())
    if isinstance(error, torch.OutOfMemoryError):
        return text
    if isinstance(error, RuntimeError | MemoryError) and _OUT_OF_MEMORY.search(text):
        return text
    return None


def give_back_memory() -> str | None:
    """Let go of what the allocator keeps and nothing uses, for other processes; return why not where it cannot."""
    gc.collect()
    try:
        if _cuda_is_on():
            torch.cuda.empty_cache()
    except RuntimeError as error:  # the device is beyond being asked
        return str(error).partition("\n")[0]
    return None


def _cuda_is_on() -> bool:
    # Asking is_initialized alone is not typed by torch; asking anything more would initialize CUDA.
    return torch.cuda.is_available() and bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
