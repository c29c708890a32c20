"""The pool in which MXNet keeps a GPU's memory: how much of the device it holds, and how it rounds a size.

MXNet 1.9.1 reports neither. Its storage object has a manager for each device (src/storage/storage.cc). There are three
kinds of manager for a GPU (`MXNET_GPU_MEM_POOL_TYPE`; src/storage/pooled_storage_manager.h and
naive_storage_manager.h). The kind is known from the class name that the compiler leaves with the object. The values
read are those that the manager itself uses: the bytes that it took from CUDA and has not returned, and its rounding.
"""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass

from tbdprof.hooks.on_mxnet.session import layout

_STORAGE = "_ZN5mxnet7Storage3GetEv"
_MANAGERS_OFFSET = 88  # StorageImpl::storage_managers_, after the virtual table and two mutexes of 40 bytes
_KINDS, _KIND_BYTES = 7, 328  # one LazyAllocArray for each Context::DeviceType
_FIRST_OFFSET, _POINTER_BYTES = 40, 16  # LazyAllocArray::head_, after a mutex: shared pointers, by index
_MOST = 16  # of these pointers; MXNet keeps those of further devices elsewhere

Rule = tuple[int, int, int]  # a kind, and its two numbers
UNKNOWN: Rule = (0, 0, 0)
EXACT: Rule = (1, 0, 0)
_PAGES, _POWERS = 2, 3


@dataclass(frozen=True, slots=True)
class Pool:
    """A GPU's storage manager; sizes are in bytes."""

    allocated_bytes: Callable[[int], int]  # how much it takes for a requested size
    held_bytes: Callable[[], int | None]  # how much it holds of the device; None if exactly what is in use
    rule: Rule = UNKNOWN  # how `allocated_bytes` rounds, for the native code


def find(storage_profiler: int, device: int) -> Pool | None:
    """Return the pool of a device with allocations; `storage_profiler` is the object that MXNet's allocator calls.

    Return None if this build hides its storage, has another layout than 1.9.1, or has another kind of manager.
    """
    index = device >> 32
    try:
        storage = layout.function(_STORAGE)()
    except AttributeError:  # without this, MXNet's allocator would lose the event during which the pool is read
        return None
    if storage + _MANAGERS_OFFSET + _KINDS * _KIND_BYTES != storage_profiler or index >= _MOST:
        return None
    managers = storage + _MANAGERS_OFFSET + layout.GPU * _KIND_BYTES
    manager = _word(managers + _FIRST_OFFSET + index * _POINTER_BYTES)
    make = _OF_CLASS.get(_class(manager)) if manager else None
    return None if make is None else make(manager)


def _naive(manager: int) -> Pool:
    """GPUPooledStorageManager: round to whole pages, and above a limit to multiples of the limit."""
    page, large = _word(manager + 16), _word(manager + 24)

    def allocated_bytes(size: int) -> int:
        rounded = -(-size // page) * page
        return rounded if rounded <= large else -(-rounded // large) * large

    return Pool(allocated_bytes, lambda: _word(manager + 8), (_PAGES, page, large))


def _rounded(manager: int) -> Pool:
    """GPUPooledRoundedStorageManager: round to powers of two, at least a page, and above a limit to its multiples."""
    page, limit = _word(manager + 32), _word(manager + 40)  # as powers of two

    def allocated_bytes(size: int) -> int:
        power = (size - 1 or 1).bit_length()
        return 1 << max(power, page) if power <= limit else -(-size >> limit) << limit

    return Pool(allocated_bytes, lambda: _word(manager + 24), (_POWERS, page, limit))


def _unpooled(_manager: int) -> Pool:
    """NaiveStorageManager: each block is one of CUDA's."""
    return Pool(lambda size: size, lambda: None, EXACT)


_OF_CLASS: dict[str, Callable[[int], Pool]] = {
    "N5mxnet7storage23GPUPooledStorageManagerE": _naive,
    "N5mxnet7storage30GPUPooledRoundedStorageManagerE": _rounded,
    "N5mxnet7storage19NaiveStorageManagerINS0_16GPUDeviceStorageEEE": _unpooled,
}


def _class(thing: int) -> str:
    """Return the name of a C++ object's class, or "" if the compiler left no type information.

    The pointer to the type information stands before the virtual table.
    """
    described = _word(_word(thing) - 8)
    if not described:
        return ""
    return ctypes.string_at(_word(described + 8)).decode(errors="replace")


def _word(address: int) -> int:
    return ctypes.c_size_t.from_address(address).value
