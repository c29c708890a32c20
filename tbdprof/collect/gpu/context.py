"""Measure how much device memory a context and a framework's libraries take, in processes that do nothing else.

Below what a framework's allocator holds, memory has three more uses. These are the driver's own, the context with the
code loaded into it, and what the framework's libraries request from the driver. No counter separates them in a training
process. So one fresh process makes the device's primary context alone, and a second one computes something small in the
framework. NVML reports the device's used memory before and after.
"""

import ctypes
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tbdprof.collect import fresh
from tbdprof.collect.gpu import cuda_driver, nvml_card
from tbdprof.errors import UnavailableError
from tbdprof.facts.counters import DEVICE_TOTAL, DEVICE_USED, OTHERS_USED, PROCESS_USED
from tbdprof.facts.keys import ReasonFor

CONTEXT, LIBRARIES = ReasonFor.CONTEXT, ReasonFor.LIBRARIES
LIMIT_S = 60
DRIVER_FILES = (Path("/proc/driver/nvidia"), Path("/dev/nvidiactl"))
OTHERS_MOVED_BYTES = 64 << 20  # a larger difference between the two figures: another process started, ended or grew
_DRIVER_ONLY = "tbdprof.collect.gpu.context"

Ask = Callable[[str, int, float], Mapping[str, Any]]  # like `fresh.ask`


@dataclass(frozen=True, slots=True)
class Taken:
    """What was measured, in bytes of the device's memory; None has its reason in `missing`."""

    device_bytes: int | None = None
    used_before_bytes: int | None = None  # by the driver and other processes
    others_before_bytes: int | None = None  # by other processes
    context_bytes: int | None = None
    libraries_bytes: int | None = None
    missing: Mapping[str, str] = field(default_factory=dict)

    def facts(self) -> dict[str, int | None]:
        """Return the measured values by their names in a `Run`."""
        return {name: size for name, size in asdict(self).items() if name != "missing"}


@dataclass(frozen=True, slots=True)
class _Report:
    """A fresh process's report: memory used before and after, its own and others' share, its allocator's bytes."""

    total: int
    before: int
    after: int
    process: int | None
    others: int | None
    held: int

    def own_bytes(self) -> int:
        """Return what the process took beside its allocator; raise UnavailableError if that is not known."""
        grown = self.after - self.before
        own = self.process if self.process and abs(self.process - grown) > OTHERS_MOVED_BYTES else grown
        if own <= self.held:
            raise UnavailableError("the device's memory in use did not grow: another process gave some back meanwhile")
        return own - self.held


def has_driver(files: Iterable[Path] = DRIVER_FILES) -> bool:
    """Return whether an NVIDIA driver is present."""
    return any(file.exists() for file in files)


def measure(index: int, framework: str, module: str | None, ask: Ask = fresh.ask) -> Taken:
    """Measure how much of a device a context and a framework's libraries take; takes seconds and raises nothing.

    `module` measures the libraries: its `main(index)` prints what `around` returns. None means there is no such module.
    """
    missing: dict[str, str] = {}
    try:
        report = _report_of(ask, _DRIVER_ONLY, index)
        context = report.own_bytes()
    except UnavailableError as error:
        return Taken(missing={CONTEXT: str(error), LIBRARIES: str(error)})
    if module is None:
        missing[LIBRARIES] = f"not measured for {framework}"
        return Taken(report.total, report.before, report.others, context, None, missing)
    libraries = None
    try:
        libraries = max(0, _report_of(ask, module, index).own_bytes() - context)
    except UnavailableError as error:
        missing[LIBRARIES] = str(error)
    return Taken(report.total, report.before, report.others, context, libraries, missing)


def _report_of(ask: Ask, module: str, index: int) -> _Report:
    try:
        return _Report(**ask(module, index, LIMIT_S))
    except TypeError as error:
        raise UnavailableError(f"a process that was to measure it printed something else: {error}") from error


def main(index: int) -> None:
    """Print as JSON how much of a device this process takes by making its primary context."""
    sys.stdout.write(around(index, lambda: _make_context(index)) + "\n")


def around(index: int, work: Callable[[], int], cuda: Any = None, nvml: Any = None) -> str:
    """Run `work`, which returns the bytes that an allocator then holds; return the device's memory figures as JSON.

    Raise UnavailableError if the driver or NVML does not report it. `cuda` and `nvml` can replace their libraries.
    """
    card = nvml_card.open_card(index, nvml, cuda)
    try:
        before = dict(nvml_card.memory(card))
        held = work()
        after = dict(nvml_card.memory(card))
        listed = _by_process(card)
    except card.faults as error:
        raise UnavailableError(f"the NVIDIA driver does not report the device's memory: {error}") from error
    finally:
        nvml_card.shut(card.nvml)
    report = _Report(
        total=int(before[DEVICE_TOTAL]),
        before=int(before[DEVICE_USED]),
        after=int(after[DEVICE_USED]),
        process=listed.get(PROCESS_USED),
        others=listed.get(OTHERS_USED),
        held=held,
    )
    return json.dumps(asdict(report))


def _by_process(card: nvml_card.Card) -> Mapping[str, int]:
    with suppress(UnavailableError, *card.faults):
        return {counter: int(size) for counter, size in nvml_card.processes(card)}
    return {}


def _make_context(index: int, cuda: Any = None) -> int:
    cuda = _driver(cuda)
    try:
        cuda_driver.make_context(cuda, index)
        cuda_driver.check(cuda.cuCtxSynchronize(), "cuCtxSynchronize")
    except OSError as error:
        raise UnavailableError(f"the CUDA driver refuses: {error}") from error
    return 0


def free_and_total_bytes(index: int, cuda: Any = None) -> tuple[int, int]:
    """Return the driver's free memory of a device, and its total memory; makes a context if there is none.

    Raise UnavailableError if the driver does not report it.
    """
    cuda = _driver(cuda)
    device, free, total = ctypes.c_int(), ctypes.c_size_t(), ctypes.c_size_t()
    try:
        _check(cuda.cuInit(0))
        _check(cuda.cuDeviceGet(ctypes.byref(device), index))
        with _in_context(cuda, device):
            _check(cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)))
    except AttributeError as error:
        raise UnavailableError(f"the CUDA driver lacks a function: {error}") from error
    return free.value, total.value


@contextmanager
def _in_context(cuda: Any, device: ctypes.c_int) -> Iterator[None]:
    """Make the device's primary context current in this thread while the block runs."""
    context = ctypes.c_void_p()
    _check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    try:
        _check(cuda.cuCtxPushCurrent_v2(context))
        try:
            yield
        finally:
            cuda.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))
    finally:
        cuda.cuDevicePrimaryCtxRelease_v2(device)


def _driver(cuda: Any) -> Any:
    try:
        return cuda_driver.library(cuda)
    except OSError as error:
        raise UnavailableError(f"there is no CUDA driver: {error}") from error


def _check(status: int) -> None:
    if status:
        raise UnavailableError(f"the CUDA driver refuses: error {status}")
