"""A memory window: every allocation torch tells of, the spans it lies in, and owners read at markers."""

import weakref
from collections.abc import Sequence

import torch

from tbdprof.errors import UnavailableError
from tbdprof.hooks import Drained
from tbdprof.hooks.on_torch import owners, process
from tbdprof.hooks.on_torch.events import Mark, Point, SeenTensor, Trace
from tbdprof.hooks.on_torch.tables import build
from tbdprof.hooks.on_torch.trace import Session
from tbdprof.hooks.on_torch.watch import Watch
from tbdprof.records import Strings


class MemoryWindow:
    """Follows memory from its making, with what exists then, until `stop`.

    Raises UnavailableError where another profiler is active.
    """

    def __init__(self, watch: Watch, *, counted_from_start: bool) -> None:
        self._watch = watch
        self._counted_from_start = counted_from_start
        self._deaths: list[weakref.ref[torch.UntypedStorage]] = []
        self._left: Sequence[SeenTensor] = ()
        self._trace: Trace | None = None
        self._missing: dict[str, str] = {}
        process.release_workspaces()
        self._session = Session("memory")
        self._is_open = True
        try:
            self._existing = owners.existing(watch.watched)
            watch.open_window(reads_owners=True)
            watch.markers.place(
                Mark(Point.BEGIN, owned=owners.everything(watch.watched)),
                # An allocation tells how much torch has counted so far.
                inside=lambda: torch.empty(1, device="cpu"),
            )
            self._missing.update(owners.uncounted(watch.watched))
            if not counted_from_start:
                self._deaths = watch.mark_deaths(self._existing)
        except BaseException:
            self._end()
            raise

    def mark_step(self) -> None:
        """Mark the end of a step and read all owners there."""
        if self._watch.markers.is_on():  # else, as in a forked child, none would be kept
            self._watch.markers.place(Mark(Point.STEP, owned=owners.everything(self._watch.watched)))

    def stop(self) -> None:
        """Look at what is left, take the markers' hooks off and end the session; does nothing the second time."""
        if not self._is_open:
            return
        self._deaths.clear()
        try:
            self._left = owners.seen(self._watch.watched)
        finally:
            self._end()

    def drain(self, strings: Strings) -> Drained:
        """Return allocations, owners and spans."""
        if self._trace is None:
            return Drained({}, [], self._missing)
        tables, marks, missing = build(self._trace, self._existing, self._counted_from_start, strings, self._left)
        return Drained(tables, marks, self._missing | missing)

    def _end(self) -> None:
        self._is_open = False
        try:
            self._trace = self._session.end(self._watch.close_window())
        except UnavailableError as error:
            self._missing["memory"] = str(error)
