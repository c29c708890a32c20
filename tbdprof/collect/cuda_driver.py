"""What the CUDA driver tells about a device that this process sees, whatever framework uses it.

NVML numbers devices in its own order and knows no instance of a divided GPU; the CUDA driver numbers them as every
framework does, and tells the multiprocessors of the instance.
"""

import ctypes
from dataclasses import dataclass
from typing import Any

from tbdprof.errors import UnavailableError

_NAME_BYTES = 256
# CUdevice_attribute of cuda.h; clocks in kHz, the bus in bits.
_CLOCK, _MULTIPROCESSORS, _MEMORY_CLOCK, _MEMORY_BUS, _MAJOR, _MINOR = 13, 16, 36, 37, 75, 76


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds a device; compute capability as `9.0`."""

    name: str
    capability: str
    multiprocessors: int
    clock_hz: float  # the highest
    memory_bytes_per_s: float | None  # None: not told


def limits(index: int, cuda: Any = None) -> Limits:
    """Ask about a device; `cuda` stands in for the driver's library. Raises UnavailableError where it does not tell."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1") if cuda is None else cuda
        _check(cuda.cuInit(0))
        device, name = ctypes.c_int(), ctypes.create_string_buffer(_NAME_BYTES)
        _check(cuda.cuDeviceGet(ctypes.byref(device), index))
        _check(cuda.cuDeviceGetName(name, _NAME_BYTES, device))
        told = {number: _attribute(cuda, number, device) for number in (_MAJOR, _MINOR, _MULTIPROCESSORS, _CLOCK)}
        return Limits(
            name.value.decode(errors="replace"),
            f"{told[_MAJOR]}.{told[_MINOR]}",
            told[_MULTIPROCESSORS],
            told[_CLOCK] * 1e3,
            _bandwidth(cuda, device),
        )
    except (OSError, AttributeError) as error:
        raise UnavailableError(f"the CUDA driver does not answer: {error}") from error


def _bandwidth(cuda: Any, device: ctypes.c_int) -> float | None:
    """Return bytes a second: a bus moves its width twice a clock."""
    try:
        clock_khz, bus_bits = _attribute(cuda, _MEMORY_CLOCK, device), _attribute(cuda, _MEMORY_BUS, device)
    except OSError:
        return None
    return clock_khz * 1e3 * 2 * bus_bits / 8 if clock_khz > 0 and bus_bits > 0 else None


def _attribute(cuda: Any, number: int, device: ctypes.c_int) -> int:
    value = ctypes.c_int()
    _check(cuda.cuDeviceGetAttribute(ctypes.byref(value), number, device))
    return value.value


def _check(status: int) -> None:
    if status:
        raise OSError(f"error {status}")
