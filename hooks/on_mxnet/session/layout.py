"""Where MXNet 1.9.1 keeps what its API does not report: arrays' storages, workspaces, the profiler's counters.

Each reading of a C++ object follows its declaration (include/mxnet/ndarray.h, storage.h and resource.h, src/resource.cc
and src/profiler/). It is verified on known arrays before its result is used.
"""

import ctypes
import functools
import struct
from collections.abc import Callable, Collection, Iterator

import mxnet as mx

from tbdprof.errors import UnavailableError

_LIBRARY: ctypes.CDLL = mx.base._LIB  # noqa: SLF001 - MXNet has no public name for it

ON_ALLOC = "_ZN5mxnet7storage21DeviceStorageProfiler7OnAllocERKNS_7Storage6HandleE"
ON_FREE = "_ZN5mxnet7storage21DeviceStorageProfiler6OnFreeERKNS_7Storage6HandleE"
_RESOURCE_MANAGER = "_ZN5mxnet15ResourceManager3GetEv"
_PROFILER = "_ZN5mxnet8profiler8Profiler3GetEPSt10shared_ptrIS1_E"

CPU, GPU, CPU_PINNED, CPU_SHARED = 1, 2, 3, 5  # Context::DeviceType
_TEMP_SPACE, _DROPOUT_STATE = 1, 3  # ResourceRequest::Type
_MANY = 64  # more copies of a workspace than any setting creates

_COUNTERS_OFFSET = 176  # DeviceStorageProfiler::mem_counters_, after a virtual domain of 136 bytes and a mutex of 40
_COUNTER_NAME_OFFSET, _COUNTER_VALUE_OFFSET = 8, 144
_STATE_OFFSET, _MODE_OFFSET = 48, 56  # Profiler::state_ and mode_, after the virtual table and a recursive mutex
MEMORY_MODE = 8  # Profiler::kMemory

# NDArray::Chunk::var comes after the chunk's handle and the handles of its indices. With oneDNN, a pointer to its
# layout and that pointer's reference count come before it.
_VARIABLE_OFFSET, _ONEDNN_BYTES = 56, 16
_INDICES_OFFSET = 32  # NDArray::Chunk::aux_handles, a vector of handles
_DTYPE_OFFSET = 72  # NDArray::dtype_
_NODE_OFFSET = 88  # NDArray::autograd_entry_; its first word is the node of the recorded graph

# NDArray begins with the pointer to its chunk, which begins with its handle: address, bytes and device.
_WORD, _HANDLE = struct.Struct("<Q"), struct.Struct("<3Q")
# NDArray::shape_: how many dimensions, four of them (or room for four), and a pointer to all if they are more.
_SIZES = 4
_SHAPE_OFFSET, _SHAPE, _ARRAY_BYTES = 16, struct.Struct(f"<ii{_SIZES}qQ"), 64

OTHER_LAYOUT = "this build of MXNet lays its arrays out in another way than 1.9.1: cannot watch it"
_PROBE_SHAPE = (37, 5)
_PROBE_BYTES = 37 * 5 * 4

Storage = tuple[int, int, int]  # device as in `device_number`, address, bytes


class Handle(ctypes.Structure):
    """Storage::Handle; the lower half of `device` is its type and the upper half its index."""

    _fields_ = (
        ("address", ctypes.c_size_t),
        ("bytes", ctypes.c_size_t),
        ("device", ctypes.c_uint64),
        ("shared_pid", ctypes.c_int32),
        ("shared_id", ctypes.c_int32),
    )


class _Space(ctypes.Structure):
    """SpaceAllocator: a workspace that is kept between operators, and its counterpart on the host."""

    _fields_ = (("device", ctypes.c_uint64), ("handle", Handle), ("host_handle", Handle))


class _Resource(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int32),
        ("variable", ctypes.c_void_p),
        ("id", ctypes.c_int32),
        ("pointer", ctypes.c_size_t),
    )


def device_number(kind: int, index: int) -> int:
    """Return a device in the form that a handle holds."""
    return index << 32 | kind


def device_text(device: int) -> str:
    """Return the name that a recording gives a handle's device; MXNet counts each of its CPU devices apart."""
    kind, index = device & 0xFFFFFFFF, device >> 32
    if kind == GPU:
        return f"cuda:{index}"
    return {CPU_PINNED: "pinned", CPU_SHARED: "shared"}.get(kind, f"cpu:{index}" if index else "cpu")


def storage(array: mx.nd.NDArray) -> Storage | None:
    """Return an array's storage, or None if it has none (yet); this waits for nothing and reorders nothing."""
    return _storage(_chunk(array))


def storages(array: mx.nd.NDArray) -> tuple[Storage, ...]:
    """Return an array's storage; of a sparse array also those of its indices, after its values."""
    chunk = _chunk(array)
    found = [_storage(chunk)]
    if chunk and is_sparse(array):
        begin, end = (ctypes.c_size_t.from_address(chunk + _INDICES_OFFSET + 8 * i).value for i in range(2))
        found += [_storage(place) for place in range(begin, end, ctypes.sizeof(Handle))]
    return tuple(each for each in found if each is not None)


def _chunk(array: mx.nd.NDArray) -> int:
    return int(_WORD.unpack(ctypes.string_at(array.handle.value, _WORD.size))[0])


def _storage(handle: int) -> Storage | None:
    """Return the storage of a handle, given its address, or None if either is 0."""
    return _storage_in(ctypes.string_at(handle, _HANDLE.size) if handle else b"")


def _storage_in(text: bytes) -> Storage | None:
    if not text:
        return None
    address, size_bytes, device = _HANDLE.unpack(text)
    return (device, address, size_bytes) if address and size_bytes else None


def shape(array: int) -> tuple[int, ...]:
    """Return an array's shape, given the array's handle; `MXNDArrayGetShape` takes several times as long."""
    return _shape(ctypes.string_at(array, _ARRAY_BYTES))


def shape_at(address: int) -> tuple[int, ...]:
    """Return the shape that lies at an address."""
    return _shape(ctypes.string_at(address, _SHAPE.size), 0)


def _shape(text: bytes, offset: int = _SHAPE_OFFSET) -> tuple[int, ...]:
    count, _, *sizes, many = _SHAPE.unpack_from(text, offset)
    if count > len(sizes):
        return tuple((ctypes.c_int64 * count).from_address(many))
    return tuple(sizes[: max(0, count)])


Look = bytes | tuple[tuple[Storage, ...], tuple[int, ...]]


def look(array: mx.nd.NDArray) -> Look:
    """Return what `storages` and `shape` are read from; looks that are equal are read equally."""
    text = ctypes.string_at(array.handle.value, _ARRAY_BYTES)
    if is_sparse(array) or text[_SHAPE_OFFSET] > _SIZES:  # parts of these lie elsewhere
        return storages(array), _shape(text)
    chunk = int.from_bytes(text[:8], "little")
    return text + ctypes.string_at(chunk, _HANDLE.size) if chunk else text


def read(looked: Look) -> tuple[tuple[Storage, ...], tuple[int, ...]]:
    """Return the storages and the shape of an array."""
    if isinstance(looked, tuple):
        return looked
    found = _storage_in(looked[_ARRAY_BYTES:])
    return () if found is None else (found,), _shape(looked)


def dtype(array: int) -> int:
    """Return MXNet's number for the type of an array's elements, given the array's handle."""
    return ctypes.c_int32.from_address(array + _DTYPE_OFFSET).value


def is_sparse(array: mx.nd.NDArray) -> bool:
    """Return whether an array keeps only some of its rows or elements, with their indices."""
    return isinstance(array, mx.nd.sparse.BaseSparseNDArray)


def has_operators(device: int) -> bool:
    """Return whether operators run on a device; memory that is pinned or shared is only memory."""
    return device & 0xFFFFFFFF in (CPU, GPU)


def is_pinned(device: int) -> bool:
    """Return whether a device is the host's pinned memory, in which devices exchange gradients."""
    return device & 0xFFFFFFFF == CPU_PINNED


def variable(array: int) -> int:
    """Return the engine's variable of an array, given the array's handle, or 0 if it has none."""
    chunk = ctypes.c_size_t.from_address(array).value
    return ctypes.c_size_t.from_address(chunk + variable_offset()).value if chunk else 0


@functools.cache
def variable_offset() -> int:
    """Return where a chunk keeps the engine's variable."""
    return _VARIABLE_OFFSET + (_ONEDNN_BYTES if mx.runtime.Features().is_enabled("MKLDNN") else 0)


def recorded_node(array: int) -> int:
    """Return an array's node in the recorded graph, given the array's handle, or 0 if it has none."""
    return ctypes.c_size_t.from_address(array + _NODE_OFFSET).value


def is_made(node: int) -> bool:
    """Return whether an operator computed the value of a recorded node; otherwise the script supplied it."""
    return bool(ctypes.c_size_t.from_address(node).value)  # Node::attrs.op


def prove_recorded() -> None:
    """Raise UnavailableError if `recorded_node` reads something else."""
    given = mx.nd.ones(_PROBE_SHAPE)
    given.attach_grad()
    with mx.autograd.record():
        made = given + given
    nodes = [recorded_node(each.handle.value) for each in (given, made, made.detach(), mx.nd.ones(_PROBE_SHAPE))]
    if [bool(node) for node in nodes] != [True, True, False, False] or is_made(nodes[0]) or not is_made(nodes[1]):
        raise UnavailableError(OTHER_LAYOUT)


def prove_variable(array: mx.nd.NDArray, written: Collection[int]) -> None:
    """Raise UnavailableError if `variable` reads something else; `written` is what the array's creation wrote."""
    if variable(array.handle.value) not in written:
        raise UnavailableError(OTHER_LAYOUT)


def prove_storage() -> None:
    """Raise UnavailableError if arrays have another layout than `storage` reads."""
    array = mx.nd.ones(_PROBE_SHAPE)
    array.wait_to_read()
    address = ctypes.c_void_p()
    mx.base.check_call(_LIBRARY.MXNDArrayGetData(array.handle, ctypes.byref(address)))
    if storage(array) != (device_number(CPU, 0), address.value, _PROBE_BYTES):
        raise UnavailableError(OTHER_LAYOUT)
    known = [((3,), "int32", 4), (_PROBE_SHAPE, "float32", 0), ((1, 2, 1, 3, 1, 2), "uint8", 3)]
    given = [(mx.nd.zeros(each, dtype=name), each, number) for each, name, number in known]
    if any((shape(one.handle.value), dtype(one.handle.value)) != (each, number) for one, each, number in given):
        raise UnavailableError(OTHER_LAYOUT)


def workspaces(device: int) -> Iterator[tuple[str, Storage]]:
    """Yield the workspaces that MXNet keeps for operators of the calling thread, each with a name for its kind."""
    kinds = {_TEMP_SPACE: "temporary space"}
    # Only a build with cuDNN has this kind, and only for a GPU; any other build would end the process.
    if device & 0xFFFFFFFF == GPU and mx.runtime.Features().is_enabled("CUDNN"):
        kinds[_DROPOUT_STATE] = "dropout state"
    for kind, name in kinds.items():
        for address in dict.fromkeys(_spaces(device, kind)):
            space = _Space.from_address(address)
            for handle in (space.handle, space.host_handle):
                if handle.address and handle.bytes:
                    yield name, (handle.device, handle.address, handle.bytes)


def _spaces(device: int, wanted: int) -> Iterator[int]:
    """Request workspaces in whole rounds, so that the next operator gets the one it would have got anyway."""
    get = function(_RESOURCE_MANAGER)
    manager = get()
    table = ctypes.c_size_t.from_address(manager).value
    request = ctypes.CFUNCTYPE(
        ctypes.c_void_p,
        ctypes.POINTER(_Resource),
        ctypes.c_size_t,
        ctypes.c_uint64,
        ctypes.POINTER(ctypes.c_int32),
    )(ctypes.c_size_t.from_address(table).value)
    kind, seen, copies = ctypes.c_int32(wanted), list[int](), 0
    while (not copies or len(seen) % copies) and len(seen) < _MANY:
        resource = _Resource()
        request(ctypes.byref(resource), manager, device, ctypes.byref(kind))
        if resource.type != wanted:
            return
        if seen and resource.pointer == seen[0]:
            copies = len(seen)
        seen.append(resource.pointer)
        yield resource.pointer


def profiler_state() -> tuple[int, int]:
    """Return the state (1: running) and the mode of MXNet's own profiler."""
    get = function(_PROFILER, ctypes.c_void_p)
    profiler = get(None)
    return tuple(ctypes.c_int32.from_address(profiler + offset).value for offset in (_STATE_OFFSET, _MODE_OFFSET))  # type: ignore[return-value]


def counters(storage_profiler: int) -> dict[int, ctypes.c_uint64]:
    """Return live values of MXNet's memory counters by device; `storage_profiler` is the object its allocator calls."""
    start, end = (ctypes.c_size_t.from_address(storage_profiler + _COUNTERS_OFFSET + 8 * i).value for i in range(2))
    found = {}
    if 0 < end - start <= 4096 * 16 and (end - start) % 16 == 0:
        for place in range(start, end, 16):
            counter = ctypes.c_size_t.from_address(place).value
            device = _counted_device(ctypes.string_at(counter + _COUNTER_NAME_OFFSET, 32))
            if device is not None:
                found[device] = ctypes.c_uint64.from_address(counter + _COUNTER_VALUE_OFFSET)
    return found


def _counted_device(text: bytes) -> int | None:
    """Return the device of a counter whose name has the form `Memory: gpu/1`."""
    name = text.partition(b"\0")[0].decode("ascii", "replace").removeprefix("Memory: ")
    kind, _, index = name.partition("/")
    number = {"cpu": CPU, "gpu": GPU, "cpu pinned": CPU_PINNED, "cpu shared": CPU_SHARED}.get(kind)
    return None if number is None else device_number(number, int(index or 0))


def probe_array() -> tuple[mx.nd.NDArray, int]:
    """Return a new array on the CPU, and how many bytes MXNet must count for it."""
    array = mx.nd.ones(_PROBE_SHAPE)
    array.wait_to_read()
    return array, _PROBE_BYTES


def is_untouched() -> bool:
    """Return whether MXNet has not allocated anything yet, on any device."""
    contexts = [mx.cpu(), *(mx.gpu(i) for i in range(mx.context.num_gpus()))]
    return all(_never_allocated(context) for context in contexts)


def _never_allocated(context: mx.Context) -> bool:
    try:
        context.empty_cache()
    except mx.base.MXNetError:  # MXNet raises if there is no allocator yet
        return True
    return False


def signed(thread: int) -> int:
    """Return a thread's number in the form that a recording holds."""
    return thread - (1 << 64) if thread >= 1 << 63 else thread


def library() -> ctypes.CDLL:
    """Return MXNet's own library."""
    return _LIBRARY


def function(symbol: str, *arguments: type[ctypes.c_void_p]) -> Callable[..., int]:
    """Return an exported C++ function that returns a pointer."""
    function = _LIBRARY[symbol]
    function.restype, function.argtypes = ctypes.c_size_t, list(arguments)
    return function
