"""Follow MXNet's allocator with Python functions: the way without the native code, with the same results.

Each event waits for Python's interpreter, which the training's own Python code may hold.
"""

import ctypes
import threading
import time
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from tbdprof.facts.records import AllocationKind
from tbdprof.hooks import disagreements
from tbdprof.hooks.interrupts import guarded
from tbdprof.hooks.on_mxnet.memory import jump_slots
from tbdprof.hooks.on_mxnet.memory.allocator import Allocator
from tbdprof.hooks.on_mxnet.memory.blocks import EVENT, Block, Event, Events, Level, Maker
from tbdprof.hooks.on_mxnet.session import layout

_Callback = ctypes.CFUNCTYPE(None, ctypes.c_size_t, ctypes.POINTER(layout.Handle))
# Called without releasing the interpreter lock, so that the counter read afterwards belongs to this event.
_Original = ctypes.PYFUNCTYPE(None, ctypes.c_size_t, ctypes.POINTER(layout.Handle))


class PythonAllocator(Allocator):
    """Follows every allocation and free in Python."""

    def __init__(self, remark: str = "") -> None:
        super().__init__()
        self.remark = remark
        self.live: dict[int, Block] = {}
        self._levels: dict[int, Level] = {}
        self._together: dict[bool, Level] = {True: Level(), False: Level()}  # all GPUs; the host's devices
        self._events: list[Event] | None = None  # None if no window is open
        self.span = -1
        self.maker: Maker | None = None
        self._storage_profiler = 0
        self._sequence = 0
        # One event at a time, even while a thread waits for the interpreter; reentrant, as garbage collection frees
        # arrays.
        self._lock = threading.RLock()
        self._freed_early: dict[int, list[int]] = {}  # by address: sizes of ended blocks whose free is not reported yet
        self._other_size = 0  # frees with another size than was allocated, since the window opened
        self._early_bytes: dict[int, int] = {}  # by device: bytes of ended blocks that MXNet's counter still includes

    @property
    def storage_profiler(self) -> int:
        """Return the address of the object that MXNet's allocator calls, or 0 before the first event."""
        return self._storage_profiler

    @property
    def is_open(self) -> bool:
        """Return whether events are kept."""
        return self._events is not None

    @property
    def levels(self) -> dict[int, Level]:
        """Return the level of each device on which there were allocations."""
        return self._levels

    def peak_bytes(self, *, gpus: bool) -> int:
        """Return the most bytes that were ever live on all GPUs together, or on the host's devices together."""
        return self._together[gpus].peak_bytes

    def tick(self) -> int:
        """Return the next sequence number."""
        with self._lock:
            self._sequence += 1
            return self._sequence

    def open(self) -> dict[int, Block]:
        """Begin to keep events and restart the sequence numbers; return the live blocks."""
        with self._lock:
            self._sequence, self._events, self._other_size = 0, [], 0
            for address, block in dict(self.live).items():
                renewed = block._replace(sequence=0)  # creating it may collect garbage, which frees blocks meanwhile
                if self.live.get(address) is block:
                    self.live[address] = renewed
            return dict(self.live)

    def drain(self) -> None:
        """Do nothing: Python has the events."""

    def close(self) -> Events:
        """Stop keeping events; return them."""
        with self._lock:
            events, self._events = self._events, None
        return np.array(events or [], EVENT)

    def disagreements(self) -> str:
        """Return how MXNet's events since `open` contradict each other, or "" if they do not."""
        with self._lock:
            return disagreements(self._other_size, sum(map(len, self._freed_early.values())))

    def adopt(self, storages: Iterable[layout.Storage]) -> None:
        """Add blocks that were allocated before the watching began."""
        with self._lock:
            for device, address, size_bytes in storages:
                if address not in self.live:
                    allocated_bytes = self._taken(device, size_bytes)
                    self.live[address] = Block(device, size_bytes, None, 0, allocated_bytes)
                    self._count(device, size_bytes, allocated_bytes, 1)

    def kept(self) -> dict[int, Block]:
        """Return the live blocks that have a maker, or that are in pinned memory, by address."""
        with self._lock:
            live = dict(self.live)
        return {at: block for at, block in live.items() if block.maker is not None or layout.is_pinned(block.device)}

    def _targets(self, on_alloc: jump_slots.Slot, on_free: jump_slots.Slot) -> Sequence[int]:
        pairs = ((on_alloc, self._allocated), (on_free, self._freed))
        return [self._callback(_Original(slot.function), note) for slot, note in pairs]

    def _callback(self, original: Callable[..., None], note: Callable[[layout.Handle, int], None]) -> int:
        """Return the address of a function that calls the original and notes the event."""
        lock, counters = self._lock, self.counters

        @guarded
        def callback(storage_profiler: int, handle: "ctypes._Pointer[layout.Handle]") -> None:
            with lock:
                original(storage_profiler, handle)
                block = handle[0]
                counter = counters.get(block.device)
                self._storage_profiler = storage_profiler
                if block.bytes:
                    note(block, -1 if counter is None else counter.value - self._early_bytes.get(block.device, 0))

        kept = _Callback(callback)
        _KEPT.append(kept)
        return ctypes.cast(kept, ctypes.c_void_p).value or 0

    def _allocated(self, handle: layout.Handle, total_bytes: int) -> None:
        address, size_bytes, device = handle.address, handle.bytes, handle.device
        if address in self.live:
            # The free of the earlier block at this address is still to be reported by another thread.
            earlier = self.live[address].size_bytes
            self._freed_early.setdefault(address, []).append(earlier)
            self._early_bytes[device] = self._early_bytes.get(device, 0) + earlier
            if total_bytes >= 0:
                total_bytes -= earlier
            self._end(address, total_bytes - size_bytes if total_bytes >= 0 else -1)
        allocated_bytes = self._taken(device, size_bytes)
        self._count(device, size_bytes, allocated_bytes, 1)
        sequence = 0
        if self._events is not None:
            sizes = size_bytes, allocated_bytes
            sequence = self._keep(AllocationKind.ALLOCATED, device, address, sizes, total_bytes)
        self.live[address] = Block(device, size_bytes, self.maker, sequence, allocated_bytes)

    def _freed(self, handle: layout.Handle, total_bytes: int) -> None:
        address, tenant = handle.address, self.live.get(handle.address)
        early = self._freed_early.get(address)
        # A pool gives one address to blocks of several sizes, and two frees may be reported in reverse order.
        if early and (handle.bytes in early or tenant is None or tenant.size_bytes != handle.bytes):
            self._early_bytes[handle.device] -= handle.bytes
            self._other_size += _take(early, handle.bytes)
            if not early:
                del self._freed_early[address]
        elif tenant is not None:
            self._other_size += tenant.size_bytes != handle.bytes
            self._end(address, total_bytes)
        elif self._events is not None:
            sizes = handle.bytes, self._taken(handle.device, handle.bytes)
            self._keep(AllocationKind.FREED, handle.device, address, sizes, total_bytes)

    def _end(self, address: int, total_bytes: int) -> None:
        block = self.live.pop(address)
        self._count(block.device, block.size_bytes, block.allocated_bytes, -1)
        if self._events is not None:
            sizes = block.size_bytes, block.allocated_bytes
            self._keep(AllocationKind.FREED, block.device, address, sizes, total_bytes)

    def _count(self, device: int, size_bytes: int, allocated_bytes: int, sign: int) -> None:
        level = self._levels.get(device)
        if level is None:
            level = self._levels[device] = Level()
        level.add(size_bytes, allocated_bytes, sign)
        self._together[device & 0xFFFFFFFF == layout.GPU].add(size_bytes, allocated_bytes, sign)

    def _taken(self, device: int, size_bytes: int) -> int:
        """Return how much of its device a size takes, or -1 if that is not known; the host has no pool."""
        if device & 0xFFFFFFFF != layout.GPU:
            return size_bytes
        pool = self.pool(device)
        return -1 if pool is None else pool.allocated_bytes(size_bytes)

    def _keep(self, kind: AllocationKind, device: int, address: int, sizes: tuple[int, int], counted_bytes: int) -> int:
        """Keep an event; MXNet counts requested sizes, so add what its pool rounds up."""
        level = self._levels.get(device)
        rounding_bytes = 0 if level is None else level.rounding_bytes
        self._sequence = sequence = self._sequence + 1
        self._events.append(  # type: ignore[union-attr]
            Event(
                sequence,
                kind,
                device,
                threading.get_ident(),
                address,
                *sizes,
                time.monotonic_ns(),
                self.span,
                counted_bytes + rounding_bytes if counted_bytes >= 0 else -1,
            )
        )
        return sequence


def _take(sizes: list[int], size_bytes: int) -> bool:
    """Remove a size from a list, or the first size if it is not there; return whether it was not there."""
    is_other = size_bytes not in sizes
    sizes.remove(sizes[0] if is_other else size_bytes)
    return is_other


# A callback that MXNet was given is never freed: a thread may be about to enter it.
_KEPT: list[object] = []
