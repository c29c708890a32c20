"""A kernels window: operators, what they compute, their surroundings, and GPU activity; it does not read owners."""

from tbdprof.errors import UnavailableError
from tbdprof.facts.keys import ReasonFor
from tbdprof.facts.records import Strings
from tbdprof.hooks import Drained
from tbdprof.hooks.on_torch.kernels import gpu_activity
from tbdprof.hooks.on_torch.kernels.gpu_activity import Activity
from tbdprof.hooks.on_torch.kernels.operator_flops import describing
from tbdprof.hooks.on_torch.kernels.table import build
from tbdprof.hooks.on_torch.session.events import Mark, Point, Trace, Weight
from tbdprof.hooks.on_torch.session.reading import read
from tbdprof.hooks.on_torch.session.session import Session, reports_gpus
from tbdprof.hooks.on_torch.watch import owners
from tbdprof.hooks.on_torch.watch.watch import Watch

_NO_CUPTI = "this build of torch cannot report what a GPU does: it was made without CUPTI"


class KernelsWindow:
    """Follows operators and GPU activity from its construction until `stop`.

    Raise UnavailableError if another profiler is active.
    """

    def __init__(self, watch: Watch, device: str) -> None:
        self._watch = watch
        self._device = device
        self._gpu = device if device != "cpu" and reports_gpus() else None
        self._trace: Trace | None = None
        self._activity: Activity | None = None
        self._missing: dict[str, str] = {}
        self._weights: dict[int, Weight] = {}
        self._session = Session("kernels", gpu=self._gpu)
        self._is_open = True
        try:
            self._weights = owners.weights(watch.watched)
            watch.open_window(reads_owners=False)
            watch.markers.place(Mark(Point.BEGIN))
        except BaseException:
            self.stop()
            raise

    def mark_step(self) -> None:
        """Mark the end of a step."""
        self._watch.markers.place(Mark(Point.STEP))

    def stop(self) -> None:
        """Remove the markers' hooks and end the session; do nothing the second time."""
        if not self._is_open:
            return
        self._is_open = False
        marks = self._watch.close_window()
        try:
            recorded = self._session.end()
            events = recorded.result.events()
            self._trace = read(recorded, marks, describing(events), self._weights)
            if self._gpu is not None:
                self._activity = gpu_activity.read(events, self._gpu, recorded.offset_ns)
        except UnavailableError as error:
            self._missing[ReasonFor.KERNELS] = str(error)

    def drain(self, strings: Strings) -> Drained:
        """Return the spans of operators, layers and phases, and the kernels of a GPU."""
        if self._trace is None:
            return Drained({}, [], self._missing)
        tables, marks, missing = build(self._trace, self._activity, strings)
        if self._activity is None and self._device != "cpu":
            self._missing[ReasonFor.KERNELS] = _NO_CUPTI
        return Drained(tables, marks, {**missing, **self._missing})
