"""Every block the CPU's allocator holds at a moment, as it tells for the dump it writes when memory runs out.

No function of Python's asks for that, so the allocator's own, which takes its lock, is called in TensorFlow's library:
only where the library has it, and where the allocator is by its table of functions of the class that has it.
"""

import ctypes
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import tensorflow as tf
from tensorflow.core.protobuf.bfc_memory_map_pb2 import MemoryDump

from tbdprof.hooks.on_tensorflow.existing import Block

_LIBRARY = "libtensorflow_framework.so.2"
_PROCESS, _ALLOCATOR = "_ZN10tensorflow12ProcessState9singletonEv", "_ZN10tensorflow12ProcessState15GetCPUAllocatorEi"
_CLASS, _RECORD = "_ZTVN3tsl12BFCAllocatorE", "_ZN3tsl12BFCAllocator15RecordMemoryMapEv"
_SIZE, _DESTROY = "_ZNK10tensorflow10MemoryDump12ByteSizeLongEv", "_ZN10tensorflow10MemoryDumpD1Ev"
_WRITE = "_ZNK6google8protobuf11MessageLite23SerializePartialToArrayEPvi"
_KNOWN = "x86_64"  # where what a function returns is made at an address that is its first argument
_FIRST_FUNCTION = 2 * ctypes.sizeof(ctypes.c_void_p)  # where an object points to in its class's table (Itanium C++ ABI)
_ANYWHERE = -1  # no NUMA node
_ROOM = 4096  # for an object of some ten fields, and more


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An allocator's name and its blocks, by address."""

    allocator: str
    blocks: Mapping[int, Block]


def take() -> Snapshot | None:
    """Return what the CPU's allocator holds, None where it is none that tells, or cannot be asked."""
    if platform.machine() != _KNOWN:
        return None
    try:
        library = ctypes.CDLL(str(Path(tf.sysconfig.get_lib()) / _LIBRARY))
        process, find, record, size, write, destroy = (
            getattr(library, name) for name in (_PROCESS, _ALLOCATOR, _RECORD, _SIZE, _WRITE, _DESTROY)
        )
        table = ctypes.c_char.in_dll(library, _CLASS)
    except (AttributeError, OSError, ValueError):  # another release, or another system's library
        return None
    process.restype = find.restype = ctypes.c_void_p
    size.restype, write.restype = ctypes.c_size_t, ctypes.c_bool
    allocator = find(ctypes.c_void_p(process()), _ANYWHERE)
    if ctypes.c_size_t.from_address(allocator).value != ctypes.addressof(table) + _FIRST_FUNCTION:
        return None
    dump = ctypes.create_string_buffer(_ROOM)
    record(dump, ctypes.c_void_p(allocator))
    try:
        told = ctypes.create_string_buffer(size(dump))
        return _read(told.raw) if write(dump, told, len(told)) else None
    finally:
        destroy(dump)


def _read(told: bytes) -> Snapshot:
    dump = MemoryDump.FromString(told)
    blocks = {
        chunk.address: Block(chunk.address, chunk.requested_size, chunk.size, "", is_tensor=False)
        for chunk in dump.chunk
        if chunk.in_use
    }
    return Snapshot(dump.allocator_name, blocks)
