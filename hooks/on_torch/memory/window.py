"""A memory window: every allocation that torch reports, the span around it, and owners read at markers."""

import threading
import time
from collections.abc import Sequence

import torch
from torch._C._profiler import _ExtraFields_TorchOp, _ProfilerEvent

from tbdprof.errors import UnavailableError
from tbdprof.facts.counters import ALLOCATOR_ALLOCATED
from tbdprof.facts.keys import ReasonFor, RemarkOn
from tbdprof.facts.records import Strings
from tbdprof.hooks import Drained
from tbdprof.hooks.levels import Levels, samples
from tbdprof.hooks.on_torch import devices
from tbdprof.hooks.on_torch.memory import cuda_allocator, existing
from tbdprof.hooks.on_torch.memory.table import build
from tbdprof.hooks.on_torch.session.arguments import tensors_of
from tbdprof.hooks.on_torch.session.events import Mark, Marked, Point, Region, SeenTensor, Trace, Weight
from tbdprof.hooks.on_torch.session.reading import read
from tbdprof.hooks.on_torch.session.session import Session
from tbdprof.hooks.on_torch.watch import owners
from tbdprof.hooks.on_torch.watch.thread_members import Members
from tbdprof.hooks.on_torch.watch.watch import Watch
from tbdprof.hooks.threads import are_others

_TRANSFORMS = (
    "while it records, torch's profiler keeps what functions of torch.func (grad, vmap) wrapped: what a step made "
    "in them lives until the window ends, so the peak is above the program's own"
)


class MemoryWindow:
    """Follows memory from its construction until `stop`, including what exists at its start.

    Raise UnavailableError if another profiler is active.
    """

    def __init__(self, watch: Watch, *, counted_from_start: bool) -> None:
        self._watch = watch
        self._counted_from_start = counted_from_start
        self._deaths: existing.Deaths | None = None
        self._left: Sequence[SeenTensor] = ()
        self._trace: Trace | None = None
        self._missing: dict[str, str] = {}
        self._weights: dict[int, Weight] = {}
        self._device = watch.watched.device()
        self._levels: list[tuple[int, Levels]] = []
        self._read_levels()  # includes the workspaces that are released next; operators then allocate them again
        devices.release_workspaces()
        self._members = Members()
        self._session = Session("memory", threads=self._members)
        self._missing.update(self._members.missing)
        self._is_open = True
        try:
            self._weights = owners.weights(watch.watched)
            watch.open_window(reads_owners=True)
            # The event of an allocation carries torch's running total.
            watch.markers.place(Mark(Point.BEGIN), inside=lambda: torch.empty(1, device="cpu"))
            # Frees in a thread that is not followed yet are not reported.
            marks_deaths = not counted_from_start or are_others()
            self._deaths = existing.mark_deaths(watch.markers, self._members.act) if marks_deaths else None
            self._existing = existing.blocks(watch.watched, self._deaths)
            self._missing.update(
                cuda_allocator.unfollowed(self._device) or cuda_allocator.uncounted(self._existing, self._device)
            )
            watch.read_owners(Point.EXISTING, lambda: owners.everything(watch.watched))
            self._missing.update(existing.uncounted(watch.watched))
        except BaseException:
            self._end()
            raise

    def mark_step(self) -> None:
        """Set a step marker and read all owners there."""
        if self._watch.markers.is_on():  # otherwise, for example in a forked child, no marker is kept
            watched, is_late = self._watch.watched, self._members.look()
            self._watch.read_owners(
                Point.STEP,
                lambda: owners.everything(watched),
                lambda: existing.blocks(watched, self._deaths) if is_late else (),
            )
            self._read_levels()
            self._members.step_ended()

    def stop(self) -> None:
        """Read the remaining tensors, remove the markers' hooks and end the session; do nothing the second time."""
        if not self._is_open:
            return
        self._deaths = None
        try:
            private, remarks = cuda_allocator.pools(self._device)
            if private:
                self._levels.append((time.monotonic_ns(), private))
            self._missing.update(remarks)
            self._left = existing.tensors(self._watch.watched)
        finally:
            self._end()

    def drain(self, strings: Strings) -> Drained:
        """Return allocations, owners, spans, and samples of the allocator's levels."""
        if self._counted_from_start and self._trace is not None and self._device == "cpu" and self._trace.events:
            self._levels.append((self._trace.events[0][0], {ALLOCATOR_ALLOCATED: self._trace.cpu_bytes_at_begin}))
        levels = {"sample": samples(self._levels, self._device or "", strings)} if self._levels else {}
        if self._trace is None:
            return Drained(levels, [], self._missing)
        tables, marks, missing = build(self._trace, self._existing, self._counted_from_start, strings, self._left)
        return Drained(tables | levels, marks, self._missing | missing)

    def _read_levels(self) -> None:
        found = cuda_allocator.levels(self._device)  # cheap, because it runs within the steps
        if found:
            self._levels.append((time.monotonic_ns(), found))

    def _end(self) -> None:
        self._is_open = False
        marks = self._watch.close_window()
        if self._watch.sees_transforms:
            self._missing[RemarkOn.TRANSFORMS] = _TRANSFORMS
        try:
            self._trace = read(self._session.end(), marks, _tensors, self._weights)
        except UnavailableError as error:
            self._missing[ReasonFor.MEMORY] = str(error)


class Remains:
    """What is in memory when this is constructed; it needs no session, because the process may be out of memory."""

    def __init__(self, watch: Watch) -> None:
        self._device = watch.watched.device()
        self._levels = [(time.monotonic_ns(), cuda_allocator.levels(self._device))]
        self._existing = existing.blocks(watch.watched)
        self._mark = Mark(Point.BEGIN, owned=owners.everything(watch.watched))

    def mark_step(self) -> None:
        """Do nothing: no step is taken."""

    def stop(self) -> None:
        """Do nothing: there is nothing to undo."""

    def drain(self, strings: Strings) -> Drained:
        """Return the existing blocks and their owners."""
        trace = Trace([(self._levels[0][0], Marked(threading.get_ident(), self._mark))], begun=True)
        tables, _, missing = build(trace, self._existing, counted_from_start=True, strings=strings)
        return Drained({**tables, "sample": samples(self._levels, self._device or "", strings)}, [], missing)


def _tensors(region: Region, _: _ProfilerEvent, fields: _ExtraFields_TorchOp) -> None:
    """Give an operator's region the tensors among its arguments."""
    region.tensors = list(tensors_of(fields.inputs))
