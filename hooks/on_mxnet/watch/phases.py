"""Phases of training steps: intervals in the order of events.

In a memory window, all work requested before an edge is done at that edge. In a kernels window nothing waits. The
engine does not report for which thread it allocates. So in a memory window, threads that train at once take turns by
phase.
"""

import threading
import time
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import mxnet as mx

from tbdprof.facts.records import Operation, Phase, SpanKind, Strings
from tbdprof.facts.rows import SpanRow
from tbdprof.hooks import waiting
from tbdprof.hooks.on_mxnet.memory.allocator import Allocator

_PATIENCE_S = 2.0  # limit for waiting on another thread's phase: after it, threads may be waiting for each other


@dataclass(slots=True)
class Interval:
    """A phase on a thread; `last_sequence` is -1 until it ends."""

    id: int
    parent: int
    phase: Phase
    name: str
    thread: int
    start_ns: int
    first_sequence: int
    end_ns: int = 0
    last_sequence: int = -1


@dataclass(slots=True)
class Phases:
    """The phases of a window; allocations happen on the engine's threads, so they belong to the phase begun last."""

    allocator: Allocator
    waits: bool = True  # wait at the edges until all requested work is done
    intervals: list[Interval] = field(default_factory=list)
    overlapped: bool = False  # two threads had open phases at once
    _open: list[Interval] = field(default_factory=list)
    _sorted: tuple[int, Mapping[int, list[Interval]]] = (0, MappingProxyType({}))  # by thread, and of how many
    # Reentrant: an array freed under the lock makes a request to the engine, which asks for the phase again.
    _lock: threading.Condition = field(default_factory=lambda: threading.Condition(threading.RLock()))

    def begin(self, phase: Phase) -> Interval:
        """Wait for all requested work, then begin a phase; return one that has ended if tbdprof fails."""
        if self.waits:
            mx.nd.waitall()
        return self._begun(phase) or Interval(-1, -1, phase, "", 0, 0, 0, last_sequence=0)

    @waiting.waits
    def _begun(self, phase: Phase) -> Interval:
        thread = threading.get_ident()
        with self._lock:
            self._take_turn(thread)
            self.overlapped |= self._is_others(thread)
            parent = next((interval.id for interval in reversed(self._open) if interval.thread == thread), -1)
            interval = Interval(
                id=len(self.intervals),
                parent=parent,
                phase=phase,
                name=phase.name.lower(),
                thread=thread,
                start_ns=time.monotonic_ns(),
                first_sequence=self.allocator.tick(),
            )
            self.intervals.append(interval)
            self._open.append(interval)
            self.allocator.span = interval.id
        return interval

    def _take_turn(self, thread: int) -> None:
        """Wait until no other thread is in a phase; after waiting too long once, never wait again in this window."""
        if self.waits and not self.overlapped and not any(each.thread == thread for each in self._open):
            self._lock.wait_for(lambda: not self._is_others(thread), _PATIENCE_S)

    def _is_others(self, thread: int) -> bool:
        return any(each.thread != thread for each in self._open)

    def end(self, interval: Interval, *, wait: bool = True) -> None:
        """Wait for the phase's work, unless it failed, then end the phase; do nothing if it has ended."""
        if interval.last_sequence >= 0:
            return
        try:
            if wait and self.waits:
                mx.nd.waitall()
        finally:
            self._close(interval)

    def current(self, thread: int) -> Phase:
        """Return a thread's current phase."""
        with self._lock:
            return next((each.phase for each in reversed(self._open) if each.thread == thread), Phase.OUTSIDE)

    def of_this_thread(self) -> Phase | None:
        """Return the calling thread's phase, or None if Python did not start the thread."""
        return self.current(threading.get_ident()) if is_pythons_thread() else None

    def at(self, thread: int, time_ns: int) -> Phase:
        """Return a thread's phase at a time in the past."""
        known = self._of_thread()
        begun = bisect_right(known.get(thread, ()), time_ns, key=lambda each: each.start_ns)
        each = known[thread][begun - 1] if begun else None
        while each is not None and 0 < each.end_ns <= time_ns:
            each = self.intervals[each.parent] if each.parent >= 0 else None
        return Phase.OUTSIDE if each is None else each.phase

    def _of_thread(self) -> Mapping[int, list[Interval]]:
        if len(self.intervals) != self._sorted[0]:
            found: dict[int, list[Interval]] = {}
            for each in self.intervals:
                found.setdefault(each.thread, []).append(each)
            self._sorted = len(self.intervals), found
        return self._sorted[1]

    def end_all(self) -> None:
        """End every open phase."""
        for interval in reversed(self._open[:]):
            self._close(interval)

    @waiting.waits
    def _close(self, interval: Interval) -> None:
        with self._lock:
            interval.last_sequence = self.allocator.tick()
            interval.end_ns = time.monotonic_ns()
            if interval in self._open:
                self._open.remove(interval)
            self.allocator.span = self._open[-1].id if self._open else -1
            self._lock.notify_all()


def rows(intervals: Sequence[Interval], strings: Strings) -> list[SpanRow]:
    """Return the phases as rows of the span table."""
    return [row(each, strings) for each in intervals]


def row(phase: Interval, strings: Strings) -> SpanRow:
    """Return a phase as a row of the span table."""
    return SpanRow(
        id=phase.id,
        parent=phase.parent,
        kind=SpanKind.PHASE,
        phase=phase.phase,
        operation=Operation.OTHER,
        name=strings.add(phase.name),
        thread=phase.thread,
        start_ns=phase.start_ns,
        end_ns=phase.end_ns,
        first_sequence=phase.first_sequence,
        last_sequence=phase.last_sequence,
    )


def is_pythons_thread() -> bool:
    """Return whether Python started this thread; `threading.current_thread` would register one of MXNet's engine."""
    here = threading.get_ident()
    known = next((thread for thread in threading.enumerate() if thread.ident == here), None)
    return known is not None and not isinstance(known, threading._DummyThread)  # noqa: SLF001
