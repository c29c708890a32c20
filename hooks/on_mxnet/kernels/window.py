"""A kernels window: requests to MXNet's engine, and when each ran; nothing waits inside."""

import threading
from contextlib import ExitStack

import mxnet as mx

from tbdprof.errors import UnavailableError
from tbdprof.facts.keys import ReasonFor, RemarkOn, of_window
from tbdprof.facts.records import Strings
from tbdprof.hooks import Drained
from tbdprof.hooks.on_mxnet.kernels.spans import Operators
from tbdprof.hooks.on_mxnet.kernels.table import build
from tbdprof.hooks.on_mxnet.memory.allocator import Allocator
from tbdprof.hooks.on_mxnet.session import layout, profiler, stored_values
from tbdprof.hooks.on_mxnet.session.api_calls import Calls
from tbdprof.hooks.on_mxnet.session.engine import Engine
from tbdprof.hooks.on_mxnet.session.native_engine import NativeEngine
from tbdprof.hooks.on_mxnet.session.python_engine import PythonEngine
from tbdprof.hooks.on_mxnet.session.session import Session
from tbdprof.hooks.on_mxnet.watch.layers import Layers
from tbdprof.hooks.on_mxnet.watch.watch import Watch


class KernelsWindow:
    """Follows operators from its construction until `stop`; all earlier work is done first.

    Raise UnavailableError if the script uses MXNet's profiler, or if its engine cannot be followed.
    """

    def __init__(self, watch: Watch, allocator: Allocator) -> None:
        mx.nd.waitall()
        armed = bool(allocator.counters)
        (profiler.refuse_a_changed_profiler if armed else profiler.refuse_a_running_profiler)()
        layout.prove_recorded()
        stored_values.prove()
        self._watch, self._allocator = watch, allocator
        self._marks: list[int] = []
        self._missing: dict[str, str] = {of_window(RemarkOn.EVENTS, "kernels"): allocator.remark}
        self._operators: Operators | None = None
        with ExitStack() as put_back:
            put_back.callback(watch.close_window)
            self._phases = watch.open_window(waits=False)
            library = allocator.library
            self._calls = calls = Calls(self._phases, library)
            put_back.callback(calls.close)
            self._engine: Engine = PythonEngine(calls.listen) if library is None else NativeEngine(library, calls.note)
            put_back.callback(self._engine.remove)  # runs first, once all work is done
            self._engine.install()
            self._prove_variables()
            self._session = Session(profiler.count_again if armed else profiler.stop_profiler)
            self._put_back = put_back.pop_all()
        self._is_open = True

    def _prove_variables(self) -> None:
        array, _ = layout.probe_array()
        # Other threads may make requests meanwhile, which run within the window.
        self._engine.collect()
        mine = [push for push in list(self._engine.pushes) if push.thread == threading.get_ident()]
        layout.prove_variable(array, {variable for push in mine for variable in push.writes})
        for push in mine:
            self._engine.pushes.remove(push)

    def mark_step(self) -> None:
        """Mark the end of a step in the order of events."""
        self._watch.steps.end_update()
        self._marks.append(self._allocator.tick())

    def stop(self) -> None:
        """Undo all changes; do nothing the second time."""
        if not self._is_open:
            return
        self._is_open = False
        try:
            self._put_back.close()
        finally:
            try:
                lost = self._engine.collect()
                if lost:
                    self._missing[RemarkOn.KERNELS_LOST] = lost
                ran = self._engine.renumbered(self._session.end())
            except UnavailableError as error:
                self._missing[ReasonFor.KERNELS], ran = str(error), []
        layers, executions = Layers(self._watch.watched), self._calls.executions
        pushes = sorted(push for push in self._engine.pushes if push.name != stored_values.NAME)
        ran = [each for each in ran if each.name != stored_values.NAME]
        self._operators = Operators(pushes, ran, layers, self._missing, executions.executors, executions.stored)

    def drain(self, strings: Strings) -> Drained:
        """Return the spans of operators, layers and phases."""
        if self._operators is None:
            return Drained({}, self._marks, self._missing)
        return Drained(build(self._operators, self._phases.intervals, strings), self._marks, self._missing)
