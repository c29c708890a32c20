"""Watch MXNet's allocator: a table of live blocks at all times, and ordered events inside a window.

MXNet's allocator calls one function after each allocation and one after each free. Both are replaced, by native code
(`native_allocator`) or, where that was not built, by Python functions (`python_allocator`).
"""

import atexit
import ctypes
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence

import mxnet as mx

from tbdprof.hooks.interrupts import Signals
from tbdprof.hooks.on_mxnet.memory import jump_slots, pools
from tbdprof.hooks.on_mxnet.memory.blocks import Block, Events, Level, Maker
from tbdprof.hooks.on_mxnet.session import layout
from tbdprof.hooks.on_mxnet.session.forks import follow_forks, follow_no_more


class Allocator(ABC):
    """Follows every allocation and free from `install` until `remove`."""

    span: int  # that events are in; -1: none
    maker: Maker | None  # that is at work
    remark: str  # which way the events take
    library: ctypes.CDLL | None = None  # the native code, if it is that way

    def __init__(self) -> None:
        self.counters: dict[int, ctypes.c_uint64] = {}
        self._pools: dict[int, pools.Pool | None] = {}  # by device
        self._slots: tuple[jump_slots.Slot, ...] = ()
        self._signals = Signals()

    def install(self) -> None:
        """Replace the two functions that MXNet's allocator calls; raise UnavailableError if that is not possible."""
        found = jump_slots.find(layout.library(), (layout.ON_ALLOC, layout.ON_FREE))
        self._signals.install()
        for slot, target in zip(found, self._targets(*found), strict=True):
            slot.write(target)
        self._slots = found
        atexit.register(self.remove)
        follow_forks(self)

    def remove(self) -> None:
        """Restore MXNet's own functions; one that stays replaced would crash the process at its end."""
        atexit.unregister(self.remove)
        follow_no_more(self)
        if self._slots:
            try:
                self.wait_before_fork()
            finally:  # also if the wait is interrupted
                self.restore()

    def count(self, counters: Mapping[int, ctypes.c_uint64]) -> None:
        """Read MXNet's counters with each event from now on; they are given by device."""
        self.counters.update(counters)

    def pool(self, device: int) -> pools.Pool | None:
        """Return the pool of a GPU on which MXNet has allocated, or None if the pool is not known."""
        if device not in self._pools:
            self._pools[device] = pools.find(self.storage_profiler, device)
        return self._pools[device]

    @property
    @abstractmethod
    def storage_profiler(self) -> int:
        """Return the address of the object that MXNet's allocator calls, or 0 before the first event."""

    @property
    @abstractmethod
    def is_open(self) -> bool:
        """Return whether events are kept."""

    @property
    @abstractmethod
    def levels(self) -> Mapping[int, Level]:
        """Return the level of each device on which there were allocations."""

    @abstractmethod
    def peak_bytes(self, *, gpus: bool) -> int:
        """Return the most bytes that were ever live on all GPUs together, or on the host's devices together."""

    @abstractmethod
    def tick(self) -> int:
        """Return the next sequence number."""

    @abstractmethod
    def open(self) -> dict[int, Block]:
        """Begin to keep events and restart the sequence numbers; return the live blocks."""

    @abstractmethod
    def drain(self) -> None:
        """Move the events so far to where Python keeps them."""

    @abstractmethod
    def close(self) -> Events:
        """Stop keeping events; return them."""

    @abstractmethod
    def disagreements(self) -> str:
        """Return how MXNet's events since `open` contradict each other or were lost, or "" if neither."""

    @abstractmethod
    def adopt(self, storages: Iterable[layout.Storage]) -> None:
        """Add blocks that were allocated before the watching began."""

    @abstractmethod
    def kept(self) -> dict[int, Block]:
        """Return the live blocks that have a maker, or that are in pinned memory, by address."""

    @abstractmethod
    def _targets(self, on_alloc: jump_slots.Slot, on_free: jump_slots.Slot) -> Sequence[int]:
        """Return the addresses of the two functions to call from now on."""

    def wait_before_fork(self) -> None:
        """Wait for MXNet: it joins its threads before a fork, and one in a callback would wait for the forking one."""
        if self._slots and not sys.is_finalizing():
            try:
                mx.nd.waitall()
            except mx.base.MXNetError:
                return  # the failure is raised again where its result is read

    def restore(self) -> None:
        """Restore MXNet's own functions, whatever work is unfinished."""
        for slot in self._slots:
            slot.restore()
        self._slots = ()
        self._signals.restore()
