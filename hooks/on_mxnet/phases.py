"""Phases of training steps: intervals of the order, with everything asked for before an edge done at that edge."""

import threading
import time
from dataclasses import dataclass, field

import mxnet as mx

from tbdprof.hooks.on_mxnet.allocator import Allocator
from tbdprof.records import Phase


@dataclass(slots=True)
class Interval:
    """A phase that began, on a thread; `last_sequence` is -1 while it lasts."""

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
    """The phases of a window; allocations happen on the engine's threads, so the latest open phase has them."""

    allocator: Allocator
    intervals: list[Interval] = field(default_factory=list)
    overlapped: bool = False  # phases of two threads were open at once
    _open: list[Interval] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, phase: Phase) -> Interval:
        """Wait for what was asked for so far, and begin a phase."""
        mx.nd.waitall()
        thread = threading.get_ident()
        with self._lock:
            self.overlapped |= any(interval.thread != thread for interval in self._open)
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

    def end(self, interval: Interval, *, wait: bool = True) -> None:
        """Wait for what the phase asked for, unless it failed, and end it; does nothing where it ended before."""
        if interval.last_sequence >= 0:
            return
        try:
            if wait:
                mx.nd.waitall()
        finally:
            self._close(interval)

    def end_all(self) -> None:
        """End what is open still."""
        for interval in reversed(self._open[:]):
            self._close(interval)

    def _close(self, interval: Interval) -> None:
        with self._lock:
            interval.last_sequence = self.allocator.tick()
            interval.end_ns = time.monotonic_ns()
            if interval in self._open:
                self._open.remove(interval)
            self.allocator.span = self._open[-1].id if self._open else -1
