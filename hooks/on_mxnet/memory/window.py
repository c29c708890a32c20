"""A memory window: the events of MXNet's allocator in phases; each phase's edges wait, and owners are read there."""

import time

import mxnet as mx

from tbdprof.facts.keys import RemarkOn, of_window
from tbdprof.facts.records import Strings
from tbdprof.hooks import Drained
from tbdprof.hooks.levels import Levels, samples
from tbdprof.hooks.on_mxnet.memory import device_memory
from tbdprof.hooks.on_mxnet.memory.allocator import Allocator
from tbdprof.hooks.on_mxnet.memory.blocks import EXECUTOR, PLANNER, Events
from tbdprof.hooks.on_mxnet.memory.table import Recorded, build
from tbdprof.hooks.on_mxnet.session import layout, profiler
from tbdprof.hooks.on_mxnet.watch import owners
from tbdprof.hooks.on_mxnet.watch.watch import Watch

_LAYERS = "MXNet does not report the layer of an allocation"
_LATE = "blocks without an owner from before MXNet was watched are counted as the allocator's cache"
_OVERLAPPED = "several threads trained at once: each block is counted in the phase that began last, in any thread"


class MemoryWindow:
    """Follows memory from its construction until `stop`; all earlier work is done first.

    Raise UnavailableError if the script uses MXNet's profiler. If the watching began `late`, the existing blocks are
    those that Python can see. If `device` is a GPU, the levels of MXNet's pool are read at the end of each step.
    """

    def __init__(self, watch: Watch, allocator: Allocator, device: str, *, late: bool) -> None:
        if allocator.counters:
            profiler.refuse_a_changed_profiler()
        mx.nd.waitall()
        tensors = owners.visible()
        if late:
            allocator.adopt([*tensors.values(), *(row[:3] for row in watch.steps.everything())])
        self._watch, self._allocator, self._device = watch, allocator, device
        self._levels: list[tuple[int, Levels]] = []
        self._recorded: Recorded | None = None  # set at the end of `stop`
        self._is_open = True
        try:
            existing = allocator.open()
            self._recording = Recorded(time.monotonic_ns(), existing, frozenset(tensors))
            if late and device != "cpu":
                self._recording.missing[RemarkOn.ALLOCATOR_CACHE] = _LATE
            self._phases = watch.open_window()
            self._read_levels()
            self._read_owners()
        except BaseException:
            self._put_back()
            raise

    def mark_step(self) -> None:
        """Wait for all work of the step, then read all owners."""
        self._watch.steps.end_update()
        mx.nd.waitall()
        self._read_levels()
        self._read_owners()
        self._recording.marks.append(self._allocator.tick())
        self._allocator.drain()

    def stop(self) -> None:
        """Restore MXNet's functions and stop keeping events; do nothing the second time."""
        if not self._is_open:
            return
        recorded = self._recording
        recorded.events = self._put_back()
        wrong = self._allocator.disagreements()
        if wrong:
            recorded.missing[RemarkOn.ALLOCATIONS] = wrong
        recorded.owned = self._watch.steps.owned
        recorded.intervals = self._phases.intervals
        recorded.missing[RemarkOn.LAYERS] = _LAYERS
        recorded.missing[of_window(RemarkOn.EVENTS, "memory")] = self._allocator.remark
        if self._phases.overlapped:
            recorded.missing[RemarkOn.PHASES] = _OVERLAPPED
        self._recorded = recorded

    def drain(self, strings: Strings) -> Drained:
        """Return allocations, owners, the spans of phases, and samples of the levels of MXNet's pool."""
        if self._recorded is None:
            return Drained({}, [])
        tables = build(self._recorded, strings)
        read = {"sample": samples(self._levels, self._device, strings)} if self._levels else {}
        return Drained({**tables, **read}, self._recorded.marks, self._recorded.missing)

    def _put_back(self) -> Events:
        self._is_open = False
        try:
            self._watch.close_window()
        finally:
            events = self._allocator.close()
        return events

    def _read_levels(self) -> None:
        found, why_not = device_memory.read(self._allocator, self._device)
        if found:
            self._levels.append((time.monotonic_ns(), found))
        if why_not is not None:
            self._recording.missing[RemarkOn.ALLOCATOR_CACHE] = why_not

    def _read_owners(self) -> None:
        """Read owners. A planned block without an owner that Python cannot see belongs to the planner's pool.

        What an executor was bound with and has no owner, its results among it, is of its one plan, seen or not.
        """
        rows = self._watch.steps.everything()
        held = {row.address for row in rows}
        free = {at: block for at, block in self._allocator.kept().items() if at not in held}
        pools = {(at, block.sequence) for at, block in free.items() if block.maker == EXECUTOR}
        unseen = {at: block for at, block in free.items() if block.maker == PLANNER or layout.is_pinned(block.device)}
        if unseen:  # all arrays of Python are looked at only then: another thread may be freeing one of them
            seen = owners.visible()
            unseen = {at: block for at, block in unseen.items() if at not in seen}
        pools |= {(at, block.sequence) for at, block in unseen.items() if block.maker == PLANNER}
        self._watch.steps.read([*rows, *owners.exchanged(unseen)])
        self._recording.pools |= pools
