"""A window of kernels: operators and what they compute, what is around them, and what a GPU did; no owner is read."""

from tbdprof.errors import UnavailableError
from tbdprof.facts.records import Strings
from tbdprof.hooks import Drained
from tbdprof.hooks.on_torch.memory.table import build
from tbdprof.hooks.on_torch.session.events import Mark, Point, Trace
from tbdprof.hooks.on_torch.session.session import Session
from tbdprof.hooks.on_torch.watch.watch import Watch

_TOLD = ("span", "kernel", "sample")
_NO_CUPTI = "this build of torch cannot tell what a GPU does: it was made without CUPTI"


class KernelsWindow:
    """Follows operators, and what a GPU does, from its making until `stop`.

    Raises UnavailableError where another profiler is active.
    """

    def __init__(self, watch: Watch, device: str) -> None:
        self._watch = watch
        self._device = device
        self._trace: Trace | None = None
        self._missing: dict[str, str] = {}
        self._session = Session("kernels", device)
        self._is_open = True
        try:
            watch.open_window(reads_owners=False)
            watch.markers.place(Mark(Point.BEGIN))
        except BaseException:
            self.stop()
            raise

    def mark_step(self) -> None:
        """Mark the end of a step."""
        self._watch.markers.place(Mark(Point.STEP))

    def stop(self) -> None:
        """Take the markers' hooks off and end the session; does nothing the second time."""
        if not self._is_open:
            return
        self._is_open = False
        try:
            self._trace = self._session.end(self._watch.close_window())
        except UnavailableError as error:
            self._missing["kernels"] = str(error)

    def drain(self, strings: Strings) -> Drained:
        """Return the spans of operators, layers and phases, and the kernels of a GPU."""
        if self._trace is None:
            return Drained({}, [], self._missing)
        tables, marks, missing = build(self._trace, (), counted_from_start=True, strings=strings)
        if self._trace.activity is None and self._device != "cpu":
            self._missing["kernels"] = _NO_CUPTI
        told = {kind: rows for kind, rows in tables.items() if kind in _TOLD}
        return Drained(told, marks, {**missing, **self._missing})
