"""Follow MXNet's allocator with native code (`native/allocator.c`): no Python runs at an allocation or a free."""

import ctypes
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from tbdprof.hooks import disagreements
from tbdprof.hooks.interrupts import guarded
from tbdprof.hooks.on_mxnet.memory import jump_slots
from tbdprof.hooks.on_mxnet.memory.allocator import Allocator
from tbdprof.hooks.on_mxnet.memory.blocks import EVENT, Block, Events, Level, Maker
from tbdprof.hooks.on_mxnet.memory.pools import EXACT, UNKNOWN
from tbdprof.hooks.on_mxnet.session import layout

_Word, _Long = ctypes.c_size_t, ctypes.c_int64
_Introduce = ctypes.CFUNCTYPE(None, _Word, ctypes.c_uint64, ctypes.POINTER(_Long))
_Rule = _Long * 3
_ALL, _KEPT_ALONE = 0, 1
_ROOM = (4096, 64)  # for so many blocks at first
_LOST = "{} events were lost: there was no memory to keep them"


class _Level(ctypes.Structure):
    _fields_ = (("now_bytes", _Long), ("peak_bytes", _Long), ("rounding_bytes", _Long))


class _State(ctypes.Structure):
    _fields_ = (
        *((name, _Long) for name in ("is_open", "span", "maker", "sequence", "other_size", "early", "lost")),
        *((name, _Long) for name in ("off", "devices", "pending")),
        ("storage_profiler", ctypes.c_uint64),
        ("together", _Level * 2),
    )


class _Block(ctypes.Structure):
    _fields_ = (
        ("address", ctypes.c_uint64),
        ("bytes", _Long),
        ("device", ctypes.c_uint64),
        *((name, _Long) for name in ("allocated_bytes", "sequence", "maker")),
    )


class NativeAllocator(Allocator):
    """Follows every allocation and free in native code; there is one such code in a process."""

    def __init__(self, library: ctypes.CDLL, remark: str = "") -> None:
        super().__init__()
        self.remark = remark
        self.library = self._library = library
        library.tbd_state.restype = ctypes.POINTER(_State)
        for function in (library.tbd_tick, library.tbd_blocks):
            function.restype = _Long
        self._state: _State = library.tbd_state().contents
        self._makers: list[Maker] = []
        self._drained: list[Events] = []
        self._introduce = _Introduce(self._introduced)
        _KEPT.append(self._introduce)

    @property
    def span(self) -> int:
        """Return the span that events are in, or -1."""
        return int(self._state.span)

    @span.setter
    def span(self, span: int) -> None:
        self._state.span = span

    @property
    def maker(self) -> Maker | None:
        """Return the maker that is at work."""
        return self._maker(self._state.maker)

    @maker.setter
    def maker(self, maker: Maker | None) -> None:
        if maker is not None and maker not in self._makers:
            self._makers.append(maker)
        self._state.maker = 0 if maker is None else self._makers.index(maker) + 1

    @property
    def storage_profiler(self) -> int:
        """Return the address of the object that MXNet's allocator calls, or 0 before the first event."""
        return int(self._state.storage_profiler)

    @property
    def is_open(self) -> bool:
        """Return whether events are kept."""
        return bool(self._state.is_open)

    @property
    def levels(self) -> dict[int, Level]:
        """Return the level of each device on which there were allocations."""
        found = {}
        device, level = ctypes.c_uint64(), _Level()
        for index in range(self._state.devices):
            self._library.tbd_device(_Long(index), ctypes.byref(device), ctypes.byref(level))
            found[device.value] = Level(level.now_bytes, level.peak_bytes, level.rounding_bytes)
        return found

    def peak_bytes(self, *, gpus: bool) -> int:
        """Return the most bytes that were ever live on all GPUs together, or on the host's devices together."""
        return int(self._state.together[gpus].peak_bytes)

    def count(self, counters: Mapping[int, ctypes.c_uint64]) -> None:
        """Read MXNet's counters with each event from now on; they are given by device."""
        super().count(counters)
        for device, counter in counters.items():
            self._library.tbd_count(ctypes.c_uint64(device), ctypes.byref(counter))

    def tick(self) -> int:
        """Return the next sequence number."""
        return int(self._library.tbd_tick())

    def open(self) -> dict[int, Block]:
        """Begin to keep events and restart the sequence numbers; return the live blocks."""
        self._drained.clear()
        return self._blocks(_ALL, opens=True)

    def drain(self) -> None:
        """Move the events so far to where Python keeps them."""
        events = np.zeros(self._state.pending, EVENT)
        self._drained.append(events)  # first, for a signal's handler may raise at any point: nothing is lost then
        self._library.tbd_drain(_Word(events.ctypes.data), _Long(len(events)))

    def close(self) -> Events:
        """Stop keeping events; return them."""
        self._library.tbd_close()
        self.drain()
        events = np.concatenate(self._drained)
        self._drained = []
        return events[events["sequence"] > 0]

    def disagreements(self) -> str:
        """Return how MXNet's events since `open` contradict each other or were lost, or "" if neither."""
        state = self._state
        lost = _LOST.format(state.lost) if state.lost else ""
        return "; ".join(part for part in (disagreements(state.other_size, state.early), lost) if part)

    def adopt(self, storages: Iterable[layout.Storage]) -> None:
        """Add blocks that were allocated before the watching began."""
        for device, address, size_bytes in storages:
            numbers = ctypes.c_uint64(device), ctypes.c_uint64(address), _Long(size_bytes)
            self._library.tbd_adopt(*numbers, _Rule(*self._rule(device)))

    def kept(self) -> dict[int, Block]:
        """Return the live blocks that have a maker, or that are in pinned memory, by address."""
        return self._blocks(_KEPT_ALONE)

    def _targets(self, on_alloc: jump_slots.Slot, on_free: jump_slots.Slot) -> Sequence[int]:
        self._library.tbd_begin(_Word(on_alloc.function), _Word(on_free.function), self._introduce)
        functions = self._library.tbd_on_alloc, self._library.tbd_on_free
        return [ctypes.cast(function, ctypes.c_void_p).value or 0 for function in functions]

    def _blocks(self, which: int, *, opens: bool = False) -> dict[int, Block]:
        room = _ROOM[which]
        while True:
            found = (_Block * room)()
            arguments = found, _Long(room), _Long(which), _Long(layout.CPU_PINNED), _Long(opens)
            count = self._library.tbd_blocks(*arguments)
            if count <= room:
                break
            room = 2 * count
        return {
            each.address: Block(each.device, each.bytes, self._maker(each.maker), each.sequence, each.allocated_bytes)
            for each in found[:count]
        }

    def _maker(self, number: int) -> Maker | None:
        return self._makers[number - 1] if number else None

    @guarded
    def _introduced(self, storage_profiler: int, device: int, rule: "ctypes._Pointer[ctypes.c_int64]") -> None:
        """Say how the pool of a GPU rounds; called before the GPU's first event is kept."""
        self._state.storage_profiler = storage_profiler
        rule[0], rule[1], rule[2] = self._rule(device)

    def _rule(self, device: int) -> tuple[int, int, int]:
        if device & 0xFFFFFFFF != layout.GPU:
            return EXACT
        pool = self.pool(device)
        return UNKNOWN if pool is None else pool.rule


# A callback that the native code was given is never freed: a thread may be about to enter it.
_KEPT: list[object] = []
