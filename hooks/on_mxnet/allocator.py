"""MXNet's allocator, watched: a live table always, events in the one order of a window."""

import atexit
import ctypes
import functools
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import mxnet as mx

from tbdprof.hooks import disagreements, slots
from tbdprof.hooks.interrupts import Signals, guarded
from tbdprof.hooks.on_mxnet import layout
from tbdprof.records import AllocationKind

_Callback = ctypes.CFUNCTYPE(None, ctypes.c_size_t, ctypes.POINTER(layout.Handle))
# Chained without letting go of the interpreter, so that the counter read afterwards is that event's.
_Original = ctypes.PYFUNCTYPE(None, ctypes.c_size_t, ctypes.POINTER(layout.Handle))


class Block(NamedTuple):
    """A live block, made at a place of the window's order (0: before it).

    `planning` tells that a memory planner's pools were being filled when it was made.
    """

    device: int
    size_bytes: int
    planning: bool
    sequence: int


class Event(NamedTuple):
    """An allocation or a free."""

    sequence: int
    kind: AllocationKind
    device: int
    thread: int
    address: int
    size_bytes: int
    time_ns: int
    span: int
    total_bytes: int


@dataclass(slots=True)
class Level:
    """Bytes live on a device, and the most there ever were."""

    now_bytes: int = 0
    peak_bytes: int = 0


class Allocator:
    """Follows every allocation and free from `install` until `remove`."""

    def __init__(self) -> None:
        self.live: dict[int, Block] = {}
        self.levels: dict[int, Level] = {}
        self.events: list[Event] | None = None  # None: no window is open
        self.span = -1
        self.planning = False
        self.counters: dict[int, ctypes.c_uint64] = {}
        self.storage_profiler = 0
        self._sequence = 0
        # One event at a time, across waiting for the interpreter; a collection of garbage inside may free arrays.
        self._lock = threading.RLock()
        self._freed_early: dict[int, list[int]] = {}  # by address: the sizes of ended blocks whose free is not told yet
        self._other_size = 0  # frees that told another one, since the window opened
        self._early_bytes: dict[int, int] = {}  # by device: of ended blocks that MXNet's counter still holds
        self._slots: tuple[slots.Slot, ...] = ()
        self._signals = Signals()

    def install(self) -> None:
        """Take the places of the two functions MXNet's allocator calls; raises UnavailableError where it cannot."""
        found = slots.find(layout.library(), (layout.ON_ALLOC, layout.ON_FREE))
        self._signals.install()
        self._slots = found
        for slot, note in zip(found, (self._allocated, self._freed), strict=True):
            slot.write(self._callback(_Original(slot.function), note))
        atexit.register(self.remove)
        follow_forks(self)

    def remove(self) -> None:
        """Put MXNet's own functions back; a place left taken would crash the process at its end."""
        atexit.unregister(self.remove)
        _INSTALLED.discard(self)
        if self._slots:
            try:
                self.wait_before_fork()
            finally:  # an interrupt of the waiting, too
                self.restore()

    def tick(self) -> int:
        """Return the next place in the order."""
        with self._lock:
            self._sequence += 1
            return self._sequence

    def open(self) -> dict[int, Block]:
        """Begin to keep events, with the order at its start; return what is live."""
        with self._lock:
            self._sequence, self.events, self._other_size = 0, [], 0
            for address, block in dict(self.live).items():
                renewed = block._replace(sequence=0)  # making it may collect garbage, and that free blocks meanwhile
                if self.live.get(address) is block:
                    self.live[address] = renewed
            return dict(self.live)

    def close(self) -> list[Event]:
        """Stop to keep events; return them."""
        with self._lock:
            events, self.events = self.events, None
            return events or []

    def disagreements(self) -> str:
        """Return in which ways what MXNet told since `open` contradicts itself, "" where it does not."""
        with self._lock:
            return disagreements(self._other_size, sum(map(len, self._freed_early.values())))

    def adopt(self, storages: Iterable[layout.Storage]) -> None:
        """Know blocks that were made before anyone watched."""
        with self._lock:
            for device, address, size_bytes in storages:
                self.live.setdefault(address, Block(device, size_bytes, planning=False, sequence=0))

    def snapshot(self) -> dict[int, Block]:
        """Return what is live now."""
        with self._lock:
            return dict(self.live)

    def _callback(self, original: Callable[..., None], note: Callable[[layout.Handle, int], None]) -> int:
        """Return the address of what calls the original and notes the event."""
        lock, counters = self._lock, self.counters

        @guarded
        def callback(storage_profiler: int, handle: "ctypes._Pointer[layout.Handle]") -> None:
            with lock:
                original(storage_profiler, handle)
                block = handle[0]
                counter = counters.get(block.device)
                self.storage_profiler = storage_profiler
                if block.bytes:
                    note(block, -1 if counter is None else counter.value - self._early_bytes.get(block.device, 0))

        kept = _Callback(callback)
        _KEPT.append(kept)
        return ctypes.cast(kept, ctypes.c_void_p).value or 0

    def _allocated(self, handle: layout.Handle, total_bytes: int) -> None:
        address, size_bytes, device = handle.address, handle.bytes, handle.device
        if address in self.live:
            # Its earlier tenant's free is still on its way here from another thread.
            earlier = self.live[address].size_bytes
            self._freed_early.setdefault(address, []).append(earlier)
            self._early_bytes[device] = self._early_bytes.get(device, 0) + earlier
            if total_bytes >= 0:
                total_bytes -= earlier
            self._end(address, total_bytes - size_bytes if total_bytes >= 0 else -1)
        level = self.levels.get(device)
        if level is None:
            level = self.levels[device] = Level()
        level.now_bytes += size_bytes
        level.peak_bytes = max(level.peak_bytes, level.now_bytes)
        sequence = 0
        if self.events is not None:
            sequence = self._keep(AllocationKind.ALLOCATED, device, address, size_bytes, total_bytes)
        self.live[address] = Block(device, size_bytes, self.planning, sequence)

    def _freed(self, handle: layout.Handle, total_bytes: int) -> None:
        address = handle.address
        early = self._freed_early.get(address)
        if early:
            self._early_bytes[handle.device] -= handle.bytes
            self._other_size += _take(early, handle.bytes)
            if not early:
                del self._freed_early[address]
        elif address in self.live:
            self._other_size += self.live[address].size_bytes != handle.bytes
            self._end(address, total_bytes)
        elif self.events is not None:
            self._keep(AllocationKind.FREED, handle.device, address, handle.bytes, total_bytes)

    def _end(self, address: int, total_bytes: int) -> None:
        block = self.live.pop(address)
        if block.device in self.levels:
            self.levels[block.device].now_bytes -= block.size_bytes
        if self.events is not None:
            self._keep(AllocationKind.FREED, block.device, address, block.size_bytes, total_bytes)

    def _keep(self, kind: AllocationKind, device: int, address: int, size_bytes: int, total_bytes: int) -> int:
        self._sequence = sequence = self._sequence + 1
        self.events.append(  # type: ignore[union-attr]
            Event(
                sequence,
                kind,
                device,
                threading.get_ident(),
                address,
                size_bytes,
                time.monotonic_ns(),
                self.span,
                total_bytes,
            )
        )
        return sequence

    def wait_before_fork(self) -> None:
        """MXNet joins its threads before a fork; one that stood in a callback would wait for the forking thread."""
        if self._slots and not sys.is_finalizing():
            try:
                mx.nd.waitall()
            except mx.base.MXNetError:
                return  # the failure is told again where its result is read

    def restore(self) -> None:
        """Put MXNet's own functions back, whatever is under way."""
        for slot in self._slots:
            slot.restore()
        self._slots = ()
        self._signals.restore()


class Patched(Protocol):
    """Has given MXNet something to call."""

    def wait_before_fork(self) -> None:
        """Let every thread leave it."""

    def restore(self) -> None:
        """Put MXNet's own back, whatever is under way."""


_INSTALLED: weakref.WeakSet[Patched] = weakref.WeakSet()


def follow_forks(patched: Patched) -> None:
    """Have a forked child put MXNet's own back."""
    _INSTALLED.add(patched)
    _register()


@functools.cache  # once a process: what is registered stays
def _register() -> None:
    def before() -> None:
        for allocator in list(_INSTALLED):
            allocator.wait_before_fork()

    def in_child() -> None:
        for allocator in list(_INSTALLED):
            allocator.restore()

    os.register_at_fork(before=before, after_in_child=in_child)


def _take(sizes: list[int], size_bytes: int) -> bool:
    """Take a size off a list, the first where it is not there; return whether it was not."""
    is_other = size_bytes not in sizes
    sizes.remove(sizes[0] if is_other else size_bytes)
    return is_other


# What MXNet was once given to call is never let go: a thread may be on its way into it.
_KEPT: list[object] = []
