"""Report the phases of a step, and read owners at their edges; `watch` says what begins and ends them."""

import os
import threading
from collections.abc import Callable
from typing import Any

import mxnet as mx

from tbdprof.facts.records import Phase
from tbdprof.hooks.on_mxnet.memory.allocator import Allocator
from tbdprof.hooks.on_mxnet.memory.blocks import stored
from tbdprof.hooks.on_mxnet.session import layout
from tbdprof.hooks.on_mxnet.watch import owners
from tbdprof.hooks.on_mxnet.watch.phases import Interval, Phases, is_pythons_thread
from tbdprof.hooks.on_mxnet.watch.trainers import AnyTrainer
from tbdprof.hooks.waiting import waits


class _Thread(threading.local):
    """The open phases of a thread."""

    forward: Interval | None = None
    update: Interval | None = None  # of weights by hand


class StepPhases:
    """The phases of each thread's steps, and the owners that were read, while a window is open."""

    def __init__(self, allocator: Allocator, watched: owners.Watched) -> None:
        self.phases: Phases | None = None  # None if no window is open
        self.owned: list[tuple[int, owners.Owned]] = []  # with sequence numbers
        self._allocator = allocator
        self._watched = watched
        self._open = _Thread()
        self._pid = os.getpid()

    def open_window(self, *, waits: bool) -> Phases:
        """Begin to report phases; with `waits`, also read owners."""
        self.phases, self.owned, self._open = Phases(self._allocator, waits), [], _Thread()
        return self.phases

    def close_window(self) -> None:
        """End open phases, and report no more."""
        if self.phases is not None:
            self.phases.end_all()
            self.phases = None

    def here(self) -> Phases | None:
        """Return the phases to report to; None without a window, in a forked child, and on the engine's own threads.

        The engine's threads run custom operators. Such a thread would wait for itself if it waited for all work there.
        """
        if self.phases is None or os.getpid() != self._pid:
            return None
        return self.phases if is_pythons_thread() else None

    def everything(self) -> list[owners.Owned]:
        """Return all storages with an owner."""
        return owners.everything(self._watched, stored(self._allocator.kept()))

    def read(self, rows: list[owners.Owned]) -> int:
        """Keep the owners with a new sequence number; return that number."""
        sequence = self._allocator.tick()
        self.owned += [(sequence, row) for row in rows]
        return sequence

    def begin_forward(self, phases: Phases) -> None:
        """Begin the forward phase of this thread, unless it has begun."""
        if self._open.forward is None:
            self._open.forward = phases.begin(Phase.FORWARD)

    def forward(self, phases: Phases, arguments: object, original: Callable[[], Any], *, stays: bool) -> Any:
        """Call a model in the forward phase, which ends with the call unless it `stays` open."""
        self.begin_forward(phases)
        if phases.waits:
            self._read_quietly(lambda: owners.inputs(arguments))
        done = False
        try:
            result = original()
            done = True
            return result
        finally:
            if not stays:
                self.end_forward(phases, wait=done)

    def end_forward(self, phases: Phases, *, wait: bool = True) -> None:
        """End the forward phase of this thread, if one is open."""
        forward, self._open.forward = self._open.forward, None
        if forward is not None:
            phases.end(forward, wait=wait)
            self._read_workspaces(phases)

    def within(self, phases: Phases, phase: Phase, original: Callable[[], Any]) -> Any:
        """Call a function in a phase of its own."""
        interval, done = phases.begin(phase), False
        try:
            result = original()
            done = True
            return result
        finally:
            phases.end(interval, wait=done)
            self._read_workspaces(phases)

    def update(self, trainer: AnyTrainer, original: Callable[[], Any]) -> Any:
        """Call the step of a trainer in an update phase, and read the gradients and the states of its parameters."""
        phases = self.here()
        if phases is None:
            return original()
        self.end_forward(phases)
        if not phases.waits:
            return self.within(phases, Phase.UPDATE, original)
        mx.nd.waitall()
        named = self._parameters() or []
        self._read_quietly(lambda: owners.gradients_of(trainer, named))
        result = self.within(phases, Phase.UPDATE, original)
        self._read_quietly(lambda: owners.state(trainer, named))
        return result

    @property
    def is_updating(self) -> bool:
        """Return whether this thread updates weights by hand."""
        return self._open.update is not None

    def begin_update(self, phases: Phases) -> None:
        """Begin an update of weights by hand."""
        if phases.waits:
            mx.nd.waitall()
            self._read_quietly(lambda: owners.gradients(self._watched.parameters()))
        self._open.update = phases.begin(Phase.UPDATE)

    def end_update(self) -> None:
        """End the update of weights by hand, if one is going on."""
        update, self._open.update = self._open.update, None
        if update is not None and self.phases is not None:
            self.phases.end(update)
            self._read_workspaces(self.phases)

    @waits
    def _parameters(self) -> owners.Named:
        return self._watched.parameters()

    def _read_workspaces(self, phases: Phases) -> None:
        if phases.waits:
            self._read_quietly(self._workspaces)

    def _workspaces(self) -> list[owners.Owned]:
        devices = {device for device in list(self._allocator.levels) if layout.has_operators(device)}
        return [row for device in sorted(devices) for row in owners.workspaces(device)]

    @waits
    def _read_quietly(self, read: Callable[[], list[owners.Owned]]) -> None:
        """Read owners within the script's own call, which no failure of the reading reaches."""
        self.read(read())
