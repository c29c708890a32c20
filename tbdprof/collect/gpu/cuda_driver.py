"""What the CUDA driver reports of a device that this process sees, whatever framework uses it.

NVML numbers devices in its own order and knows no instance of a divided GPU. The CUDA driver numbers them as every
framework does, and reports the multiprocessors of the instance.
"""

import ctypes
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from tbdprof.errors import UnavailableError

_NAME_BYTES = 256
_UUID_BYTES = 16
_BUS_ID_BYTES = 32
# CUdevice_attribute of cuda.h; clocks in kHz, bus width in bits
_CLOCK, _MULTIPROCESSORS, _MEMORY_CLOCK, _MEMORY_BUS, _MAJOR, _MINOR = 13, 16, 36, 37, 75, 76


@dataclass(frozen=True, slots=True)
class Limits:
    """The properties that limit a device's rates; compute capability in the form `9.0`."""

    name: str
    capability: str
    multiprocessors: int
    clock_hz: float  # the highest
    memory_bytes_per_s: float | None  # None if not reported


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity under which NVML knows a device, whatever CUDA_VISIBLE_DEVICES does to the numbers."""

    uuid: str  # in the form 00000000-0000-0000-0000-000000000000; an instance of a divided GPU has its own
    bus_id: str | None  # of its PCI slot, None if not reported


def index_of(device: str) -> int:
    """Return the driver's number of a device ("cuda:1", "cuda")."""
    return int(device.partition(":")[2] or 0)


def count(cuda: Any = None) -> int:
    """Return how many devices this process sees; raise UnavailableError if the driver does not report it."""
    found = ctypes.c_int()
    try:
        check(_driver(cuda).cuDeviceGetCount(ctypes.byref(found)))
    except (OSError, AttributeError) as error:
        raise UnavailableError(f"the CUDA driver does not answer: {error}") from error
    return found.value


def limits(index: int, cuda: Any = None) -> Limits:
    """Return a device's limits; raise UnavailableError if they are not reported; `cuda` can replace the library."""
    try:
        cuda, device = _begun(index, cuda)
        name = ctypes.create_string_buffer(_NAME_BYTES)
        check(cuda.cuDeviceGetName(name, _NAME_BYTES, device))
        attributes = {number: _attribute(cuda, number, device) for number in (_MAJOR, _MINOR, _MULTIPROCESSORS, _CLOCK)}
        return Limits(
            name.value.decode(errors="replace"),
            f"{attributes[_MAJOR]}.{attributes[_MINOR]}",
            attributes[_MULTIPROCESSORS],
            attributes[_CLOCK] * 1e3,
            _bandwidth(cuda, device),
        )
    except (OSError, AttributeError) as error:
        raise UnavailableError(f"the CUDA driver does not answer: {error}") from error


def identity(index: int, cuda: Any = None) -> Identity:
    """Return the device that a number stands for; raise UnavailableError if the driver does not report it."""
    try:
        cuda, device = _begun(index, cuda)
        return Identity(_uuid(cuda, device), _bus_id(cuda, device))
    except (OSError, AttributeError) as error:
        raise UnavailableError(f"the CUDA driver does not answer: {error}") from error


def library(cuda: Any = None) -> Any:
    """Return the driver's library, or what stands in for it; raise OSError if there is none."""
    return ctypes.CDLL("libcuda.so.1") if cuda is None else cuda


def check(status: int, call: str = "") -> None:
    """Raise OSError if a call of the driver failed."""
    if status:
        raise OSError(f"{call}: error {status}" if call else f"error {status}")


def make_context(cuda: Any, index: int) -> None:
    """Make a device's primary context, the one that frameworks use, and enter it; raise OSError if that fails."""
    device, context = ctypes.c_int(), ctypes.c_void_p()
    check(cuda.cuDeviceGet(ctypes.byref(device), index), "cuDeviceGet")
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), "cuDevicePrimaryCtxRetain")
    check(cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent")


def _driver(cuda: Any) -> Any:
    """Return the driver's library, ready to be asked."""
    cuda = library(cuda)
    check(cuda.cuInit(0))
    return cuda


def _begun(index: int, cuda: Any) -> tuple[Any, ctypes.c_int]:
    """Return the driver's library and its handle of a device."""
    cuda, device = _driver(cuda), ctypes.c_int()
    check(cuda.cuDeviceGet(ctypes.byref(device), index))
    return cuda, device


def _uuid(cuda: Any, device: ctypes.c_int) -> str:
    """Return the identifier of the device the process computes on; before CUDA 11.4, an instance had its card's."""
    given = ctypes.create_string_buffer(_UUID_BYTES)
    ask = getattr(cuda, "cuDeviceGetUuid_v2", None) or cuda.cuDeviceGetUuid
    check(ask(given, device))
    return str(UUID(bytes=given.raw))


def _bus_id(cuda: Any, device: ctypes.c_int) -> str | None:
    given = ctypes.create_string_buffer(_BUS_ID_BYTES)
    try:
        check(cuda.cuDeviceGetPCIBusId(given, _BUS_ID_BYTES, device))
    except (OSError, AttributeError):
        return None
    return given.value.decode(errors="replace") or None


def _bandwidth(cuda: Any, device: ctypes.c_int) -> float | None:
    """Return bytes per second: a bus transfers its width twice per clock cycle."""
    try:
        clock_khz, bus_bits = _attribute(cuda, _MEMORY_CLOCK, device), _attribute(cuda, _MEMORY_BUS, device)
    except OSError:
        return None
    return clock_khz * 1e3 * 2 * bus_bits / 8 if clock_khz > 0 and bus_bits > 0 else None


def _attribute(cuda: Any, number: int, device: ctypes.c_int) -> int:
    value = ctypes.c_int()
    check(cuda.cuDeviceGetAttribute(ctypes.byref(value), number, device))
    return value.value
