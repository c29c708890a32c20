"""Every block that one of TensorFlow's allocators holds now, from the dump that it makes when memory runs out.

TensorFlow's Python API has no function for this. So this module calls the allocator's own function, which takes its
lock, in TensorFlow's library. It does so only if the library has the function, and if the allocator's function table
says that its class has it.
"""

import ctypes
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf.bfc_memory_map_pb2 import MemChunk, MemoryDump
from tensorflow.python.eager import context

from tbdprof.collect.gpu import cuda_driver
from tbdprof.hooks.on_tensorflow.memory.existing import Block

_LIBRARY = "libtensorflow_framework.so.2"
_CPUS = "_ZN10tensorflow12ProcessState9singletonEv", "_ZN10tensorflow12ProcessState15GetCPUAllocatorEi"
_GPUS = (
    "_ZN10tensorflow15GPUProcessState9singletonEPS0_",
    "_ZN10tensorflow15GPUProcessState15GetGPUAllocatorERKNS_10GPUOptionsEN3tsl3gtl7IntTypeINS4_15TfDeviceId_tag_EiEEm"
    "RKSt6vectorIS8_SaIS8_EE",
)
_OPTIONS = "_ZN10tensorflow10GPUOptionsC1EPN6google8protobuf5ArenaE", "_ZN10tensorflow10GPUOptionsD1Ev"
_CPUS_CLASS, _GPUS_CLASS = "_ZTVN3tsl12BFCAllocatorE", "_ZTVN10tensorflow15GPUBFCAllocatorE"
_RECORD = "_ZN3tsl12BFCAllocator15RecordMemoryMapEv"
_SIZE, _DESTROY = "_ZNK10tensorflow10MemoryDump12ByteSizeLongEv", "_ZN10tensorflow10MemoryDumpD1Ev"
_WRITE = "_ZNK6google8protobuf11MessageLite23SerializePartialToArrayEPvi"
_KNOWN = "x86_64"  # here a function's result is made at an address that is its first argument
_FIRST_FUNCTION = 2 * ctypes.sizeof(ctypes.c_void_p)  # where in its class's table an object points (Itanium C++ ABI)
_ANYWHERE = -1  # no NUMA node
_ROOM = 4096  # more than enough for an object of some ten fields
_NO_PEERS = 3 * ctypes.sizeof(ctypes.c_void_p)  # an empty std::vector is three null pointers


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An allocator's name, its blocks by address, and what it holds of the device for them.

    `fragments_bytes` are not in use, but part of a piece of memory in which something is, as far as addresses show.
    """

    allocator: str
    blocks: Mapping[int, Block]
    reserved_bytes: int
    fragments_bytes: int

    @property
    def allocated_bytes(self) -> int:
        """Return how many bytes the blocks take."""
        return sum(block.allocated_bytes for block in self.blocks.values())


def take(device: str) -> Snapshot | None:
    """Return what the allocator of "cpu" or "cuda:N" holds, or None if it has no such dump or cannot be called."""
    try:
        library = _library()
        allocator = _of_cpu(library) if device == "cpu" else _of_gpu(library, cuda_driver.index_of(device))
        return None if allocator is None else _read(_dump(library, allocator))
    except (AttributeError, DecodeError, OSError, ValueError):  # another release, or another system's library
        return None


@cache
def _library() -> ctypes.CDLL:
    if platform.machine() != _KNOWN:
        raise OSError(f"not known of {platform.machine()}")
    return ctypes.CDLL(str(Path(tf.sysconfig.get_lib()) / _LIBRARY))


def _of_cpu(library: ctypes.CDLL) -> int | None:
    """Return the address of the CPU's allocator."""
    process, find = (getattr(library, name) for name in _CPUS)
    process.restype = find.restype = ctypes.c_void_p
    return _of_class(library, find(ctypes.c_void_p(process()), _ANYWHERE), _CPUS_CLASS)


def _of_gpu(library: ctypes.CDLL, number: int) -> int | None:
    """Return the address of a GPU's allocator, or None if TensorFlow does not use it yet: a query would start it."""
    if not _has(number):
        return None
    process, find, options, forget = (getattr(library, name) for name in (*_GPUS, *_OPTIONS))
    process.restype = find.restype = ctypes.c_void_p
    chosen, peers = ctypes.create_string_buffer(_ROOM), ctypes.create_string_buffer(_NO_PEERS)
    options(chosen, None)
    try:
        found = find(ctypes.c_void_p(process(None)), chosen, number, ctypes.c_size_t(0), peers)
    finally:
        forget(chosen)
    return _of_class(library, found, _GPUS_CLASS)


def _has(number: int) -> bool:
    """Return whether TensorFlow has started with a GPU."""
    here = context.context()
    begun = here._initialized  # noqa: SLF001 - every other query would start it
    return bool(begun) and any(name.endswith(f"/device:GPU:{number}") for name in here.devices())


def _of_class(library: ctypes.CDLL, allocator: int, name: str) -> int | None:
    """Return an allocator if its class has this name, else None."""
    table = ctypes.addressof(ctypes.c_char.in_dll(library, name)) + _FIRST_FUNCTION
    return allocator if ctypes.c_size_t.from_address(allocator).value == table else None


def _dump(library: ctypes.CDLL, allocator: int) -> bytes:
    record, size, write, destroy = (getattr(library, name) for name in (_RECORD, _SIZE, _WRITE, _DESTROY))
    size.restype, write.restype = ctypes.c_size_t, ctypes.c_bool
    dump = ctypes.create_string_buffer(_ROOM)
    record(dump, ctypes.c_void_p(allocator))
    try:
        written = ctypes.create_string_buffer(size(dump))
        if not write(dump, written, len(written)):
            raise ValueError("the allocator's dump could not be written")
        return written.raw
    finally:
        destroy(dump)


def _read(written: bytes) -> Snapshot:
    dump = MemoryDump.FromString(written)
    blocks = {
        chunk.address: Block(chunk.address, chunk.requested_size, chunk.size, "", is_tensor=False)
        for chunk in dump.chunk
        if chunk.in_use
    }
    reserved = sum(chunk.size for chunk in dump.chunk)
    return Snapshot(dump.allocator_name, blocks, reserved, _fragments(dump.chunk))


def _fragments(chunks: Sequence[MemChunk]) -> int:
    """Return the unused bytes of all pieces (adjacent chunks) in which something is in use."""
    ordered = sorted(chunks, key=lambda chunk: chunk.address)
    ends = [place for place, (one, next_) in enumerate(pairwise(ordered), 1) if one.address + one.size != next_.address]
    pieces = [ordered[first:last] for first, last in pairwise([0, *ends, len(ordered)])]
    return sum(
        chunk.size for piece in pieces if any(chunk.in_use for chunk in piece) for chunk in piece if not chunk.in_use
    )
