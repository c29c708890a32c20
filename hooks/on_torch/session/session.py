"""One session of torch's profiler, and its event tree read into a `Trace`."""

import time
from contextlib import ExitStack
from typing import ClassVar

from torch._C._autograd import _profiler_type, _supported_activities
from torch._C._profiler import (
    ActiveProfilerType,
    ProfilerActivity,
    RecordScope,
    _ExperimentalConfig,
    _ExtraFields_Allocation,
    _ExtraFields_TorchOp,
    _ProfilerEvent,
    _RecordFunctionFast,
)
from torch.autograd.profiler import profile

from tbdprof.errors import UnavailableError
from tbdprof.hooks.clock import wall_offset_ns
from tbdprof.hooks.on_torch import devices
from tbdprof.hooks.on_torch.kernels import gpu_activity
from tbdprof.hooks.on_torch.session import arguments
from tbdprof.hooks.on_torch.session.arguments import device_text
from tbdprof.hooks.on_torch.session.events import (
    Enter,
    Event,
    Leave,
    Mark,
    Marked,
    MemoryEvent,
    Point,
    Region,
    Scope,
    Trace,
    relate,
    tell_last_runs,
)
from tbdprof.hooks.on_torch.session.malloc_headroom import Room
from tbdprof.hooks.on_torch.session.thread_order import in_order
from tbdprof.hooks.on_torch.watch.thread_members import LOCK, Members

MARKER = "##tbd:"
_WHOLE = f"{MARKER}whole"  # the range around a window
_BUSY = "a thread was still inside an operator when the window had ended: what was recorded could not be read"
_TAKEN = "another torch profiler began within the window and took its events: leave it off while tbdprof records"
_NOT_RUNNING = "not running"  # so torch 2.11 ends a session that was taken over
_SCOPES = {RecordScope.BACKWARD_FUNCTION: Scope.BACKWARD, RecordScope.USER_SCOPE: Scope.USER}


def is_profiler_active() -> bool:
    """Return whether any profiler of torch's is on."""
    return Session.is_on or _profiler_type() != ActiveProfilerType.NONE


class Session:
    """Records operators and their arguments until it is ended.

    In memory windows it records every allocation, too, in kernels windows what a GPU does if the run is on one. Other
    threads are recorded in both: in kernels windows torch sees to it, in memory windows they join (`members`).
    """

    is_on: ClassVar[bool] = False  # torch does not tell of a profiler of all threads

    def __init__(self, window: str, device: str = "cpu") -> None:
        if is_profiler_active():
            raise UnavailableError(f"another torch profiler is active: end it before tbdprof's {window} window begins")
        self._of_kernels = window == "kernels"
        # Without CUPTI torch would time operators by CUDA events, which are not kernels.
        on_gpu = self._of_kernels and device != "cpu" and ProfilerActivity.CUDA in _supported_activities()
        self._gpu = device if on_gpu else None
        self._room = Room()
        self._members = None if self._of_kernels else Members()
        self._profile = profile(
            use_kineto=True,
            use_device="cuda" if on_gpu else None,
            profile_memory=not self._of_kernels,
            record_shapes=True,
            experimental_config=_ExperimentalConfig(
                # Else autograd's threads alone are told; but then nothing is told of memory (pytorch#166121).
                profile_all_threads=self._of_kernels,
                expose_kineto_event_metadata=on_gpu,
            ),
        )
        self._whole: _RecordFunctionFast | None = None
        self._offset_ns = wall_offset_ns()
        Session.is_on = True
        try:
            with devices.quiet_profiler(), LOCK:
                self._profile.__enter__()  # type: ignore[no-untyped-call]
            devices.stop_polling()
            if not self._of_kernels:
                # The tree lacks what a GPU's allocator did outside any range: most of what Python's own code frees.
                whole = _RecordFunctionFast(_WHOLE)
                whole.__enter__()
                self._whole = whole
            if self._members is not None:
                self._members.open()
        except RuntimeError as error:
            self._room.give_back()
            Session.is_on = False
            raise UnavailableError(f"torch's profiler cannot begin: {error}") from error
        except BaseException:
            self._leave()
            raise

    @property
    def missing(self) -> dict[str, str]:
        """Why other threads are not recorded, where there are some."""
        return {} if self._members is None else self._members.missing

    @property
    def misses_threads(self) -> bool:
        """Whether threads may have allocated that are not followed yet."""
        return self._members is not None and self._members.are_expected

    def follow(self) -> None:
        """Follow the memory of the thread that calls this, from here on."""
        if self._members is not None:
            self._members.check()

    def step_ended(self) -> None:
        """Be told that a step ended in the window."""
        if self._members is not None:
            self._members.step_ended()

    def end(self, marks: dict[int, Mark]) -> Trace:
        """End the session and read it; raises UnavailableError where that fails or another profiler took it over."""
        ended_ns = time.monotonic_ns()
        self._leave()
        result = self._profile.kineto_results
        if result is None:
            raise UnavailableError(_TAKEN)
        events = result.events() if self._of_kernels else []
        reader = _Reader(self._offset_ns, ended_ns, marks, arguments.lists_of(events) if self._of_kernels else None)
        for root in result.experimental_event_tree():
            reader.read(root)
        trace = reader.trace()
        if not trace.begun:
            raise UnavailableError(_TAKEN)
        if self._gpu is not None:
            trace.activity = gpu_activity.read(events, self._gpu, self._offset_ns)
        return trace

    def _leave(self) -> None:
        self._room.give_back()
        Session.is_on = False
        whole, self._whole = self._whole, None
        if whole is not None:
            whole.__exit__(None, None, None)
        if self._members is not None:
            self._members.close()
        if self._of_kernels or is_profiler_active():
            with devices.quiet_profiler():
                if self._members is None:
                    self._exit()
                elif not self._members.end(self._exit):
                    raise UnavailableError(_BUSY)

    def _exit(self) -> None:
        self._profile.use_device = None  # else it waits for the current device, which need not be the run's
        try:
            with ExitStack() as ends:
                ends.callback(self._profile.__exit__, None, None, None)
                if self._gpu is not None:
                    devices.synchronize(self._gpu)
        except RuntimeError as error:
            told = str(error).partition("\n")[0]
            raise UnavailableError(_TAKEN if _NOT_RUNNING in told else f"torch's profiler failed: {told}") from error


class _Reader:
    """Walks the event tree; events at the same time stay in the tree's order.

    With the lists among operators' arguments it tells what they compute, else the tensors they read.
    """

    def __init__(self, offset_ns: int, ended_ns: int, marks: dict[int, Mark], lists: arguments.Lists | None) -> None:
        self._offset_ns = offset_ns
        self._ended_ns = ended_ns
        self._marks = marks
        self._lists = lists
        self._trace = Trace()
        self._regions: list[Region] = []
        self._probe: list[MemoryEvent] = []  # what the first marker allocates and frees within it

    def read(self, root: _ProfilerEvent) -> None:
        pending: list[tuple[_ProfilerEvent | Region, Region | None]] = [(root, None)]
        while pending:
            node, parent = pending.pop()
            if isinstance(node, Region):
                self._trace.events.append((node.end_ns, Leave(node)))
                continue
            _, fields = node.typed
            inside = parent
            if isinstance(fields, _ExtraFields_TorchOp) and fields.name != _WHOLE:
                if fields.name.startswith(MARKER):
                    self._marked(node, fields)
                    continue
                inside = self._entered(node, fields, parent)
                pending.append((inside, parent))
            elif isinstance(fields, _ExtraFields_Allocation):
                self._add(node, _memory(node, fields))
            pending += [(child, inside) for child in reversed(node.children)]

    def trace(self) -> Trace:
        self._trace.events.sort(key=lambda event: event[0])
        self._trace.events = self._since_begin(in_order(self._trace.events))
        relate(sorted(self._regions, key=lambda region: region.start_ns))
        tell_last_runs([event for _, event in self._trace.events])
        return self._trace

    def _since_begin(self, events: list[tuple[int, Event]]) -> list[tuple[int, Event]]:
        """Leave out the probe, and what other threads allocated and freed before it."""
        probes = {id(event) for event in self._probe}
        first = next((place for place, (_, event) in enumerate(events) if id(event) in probes), 0)
        return [
            timed
            for place, timed in enumerate(events)
            if not (isinstance(timed[1], MemoryEvent) and (place < first or id(timed[1]) in probes))
        ]

    def _add(self, node: _ProfilerEvent, event: Event) -> None:
        self._trace.events.append((node.start_time_ns - self._offset_ns, event))

    def _entered(self, node: _ProfilerEvent, fields: _ExtraFields_TorchOp, parent: Region | None) -> Region:
        region = Region(
            name=fields.name,
            scope=_SCOPES.get(fields.scope, Scope.FUNCTION),
            thread=node.start_tid,
            start_ns=node.start_time_ns - self._offset_ns,
            end_ns=self._end_ns(node),
            number=fields.sequence_number,
            parent=parent,
            correlation=node.correlation_id,
            shapes=[arguments.shapes_of(value) for value in fields.inputs],
            tensors=() if self._lists is not None else list(arguments.tensors_of(fields.inputs)),
        )
        if self._lists is not None:
            region.operation, region.work = arguments.work_of(node, fields, self._lists)
        self._regions.append(region)
        self._add(node, Enter(region))
        return region

    def _end_ns(self, node: _ProfilerEvent) -> int:
        """Return when an operator ended; torch 2.11 gives one that goes on when the session ends no end."""
        return node.end_time_ns - self._offset_ns if node.end_time_ns >= node.start_time_ns else self._ended_ns

    def _marked(self, node: _ProfilerEvent, fields: _ExtraFields_TorchOp) -> None:
        mark = self._marks.get(int(fields.name.removeprefix(MARKER)))
        if mark is None:
            return
        self._add(node, Marked(node.start_tid, mark))
        if mark.point is Point.BEGIN:
            self._trace.begun = True
            self._read_probe(node)

    def _read_probe(self, node: _ProfilerEvent) -> None:
        """Read what is allocated inside the first marker: it tells torch's running total for the CPU before it."""
        pending = list(node.children)
        while pending:
            child = pending.pop(0)
            _, fields = child.typed
            if isinstance(fields, _ExtraFields_Allocation):
                event = _memory(child, fields)
                if not self._probe:
                    self._trace.cpu_bytes_at_begin = event.total_bytes - event.bytes
                self._probe.append(event)
                self._add(child, event)
            pending = list(child.children) + pending


def _memory(node: _ProfilerEvent, fields: _ExtraFields_Allocation) -> MemoryEvent:
    return MemoryEvent(
        device=device_text(fields.device),
        thread=node.start_tid,
        address=fields.ptr,
        bytes=fields.alloc_size,
        total_bytes=fields.total_allocated,
        was_tensor=fields.id is not None,
    )
