"""A kernels window: every operator that ran, its purpose and what it computes; it does not read owners."""

from contextlib import ExitStack

from tbdprof.errors import UnavailableError
from tbdprof.facts.keys import ReasonFor
from tbdprof.facts.records import Phase, Strings
from tbdprof.hooks import Drained
from tbdprof.hooks.on_tensorflow.flops.call_shapes import Arguments
from tbdprof.hooks.on_tensorflow.kernels.table import BEGIN, Recorded, build
from tbdprof.hooks.on_tensorflow.operators import eager
from tbdprof.hooks.on_tensorflow.operators.graphs import Graphs
from tbdprof.hooks.on_tensorflow.session.events import Trace
from tbdprof.hooks.on_tensorflow.session.session import Session
from tbdprof.hooks.on_tensorflow.watch.watch import Watch


class KernelsWindow:
    """Follows operators from its construction until `stop`; raises UnavailableError if another profiler is active.

    In eager mode it follows the operators of the thread that constructed it.
    """

    def __init__(self, watch: Watch, graphs: Graphs) -> None:
        watch.look()
        self._graphs = graphs
        self._marks: list[int] = []
        self._missing: dict[str, str] = {}
        self._trace: Trace | None = None
        self._session = Session()
        self._session.start()
        with ExitStack() as put_back:
            put_back.callback(self._end)
            self._log = eager.Log(graphs.tracing, self._session.mark)
            put_back.callback(self._log.close)
            self._arguments = Arguments()
            put_back.callback(self._arguments.close)
            self._session.mark(BEGIN)
            self._put_back = put_back.pop_all()

    def mark_step(self) -> None:
        """Mark the end of a step."""
        self._marks.append(len(self._marks) + 1)
        self._log.step()
        self._graphs.tracing.here.phase = Phase.OUTSIDE

    def stop(self) -> None:
        """End the session, whatever is raised on the way; do nothing the second time."""
        self._put_back.close()

    def drain(self, strings: Strings) -> Drained:
        """Return the spans of operators and layers, and what GPUs executed in them."""
        trace, self._trace = self._trace, None
        if trace is None:
            return Drained({}, self._marks, self._missing)
        recorded = Recorded(trace, self._log.asked, self._arguments.of_calls)
        tables, missing = build(recorded, self._graphs, strings)
        return Drained(tables, self._marks, self._missing | missing)

    def _end(self) -> None:
        try:
            self._trace = self._session.stop()
        except UnavailableError as error:
            self._missing[ReasonFor.KERNELS] = str(error)
