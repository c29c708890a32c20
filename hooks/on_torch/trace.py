"""One session of torch's profiler, and its event tree read into a `Trace`."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import ClassVar

import torch
from torch._C._autograd import _KinetoEvent, _profiler_type, _supported_activities
from torch._C._profiler import (
    ActiveProfilerType,
    ProfilerActivity,
    RecordScope,
    _ExperimentalConfig,
    _ExtraFields_Allocation,
    _ExtraFields_TorchOp,
    _ProfilerEvent,
    _TensorMetadata,
)
from torch.autograd.profiler import profile

from tbdprof.errors import UnavailableError
from tbdprof.hooks.clock import wall_offset_ns
from tbdprof.hooks.on_torch import activity, kinds, precision, process, works
from tbdprof.hooks.on_torch.events import (
    Enter,
    Event,
    Leave,
    Mark,
    Marked,
    MemoryEvent,
    Point,
    Region,
    Scope,
    SeenTensor,
    Trace,
    relate,
    tell_last_runs,
)
from tbdprof.hooks.on_torch.operands import Argument, Operand
from tbdprof.hooks.on_torch.room import Room
from tbdprof.records import Operation

MARKER = "##tbd:"
_TAKEN = "another torch profiler began within the window and took its events: leave it off while tbdprof records"
_NOT_RUNNING = "not running"  # so torch 2.11 ends a session that was taken over
_SPARSE = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
_SCOPES = {RecordScope.BACKWARD_FUNCTION: Scope.BACKWARD, RecordScope.USER_SCOPE: Scope.USER}


_Lists = Mapping[int, Sequence[object]]  # arguments by the operator's correlation number


def is_profiler_active() -> bool:
    """Return whether any profiler of torch's is on."""
    return Session.is_on or _profiler_type() != ActiveProfilerType.NONE


class Session:
    """Records operators and their arguments until it is ended.

    In memory windows it records every allocation, too, in kernels windows what a GPU does if the run is on one.
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
        self._profile = profile(
            use_kineto=True,
            use_device="cuda" if on_gpu else None,
            profile_memory=not self._of_kernels,
            record_shapes=True,
            experimental_config=_ExperimentalConfig(
                # Else autograd's threads alone are told; but of memory every thread's totals come in disorder.
                profile_all_threads=self._of_kernels,
                expose_kineto_event_metadata=on_gpu,
            ),
        )
        self._offset_ns = wall_offset_ns()
        Session.is_on = True
        try:
            with process.quiet_profiler():
                self._profile.__enter__()  # type: ignore[no-untyped-call]
            process.stop_polling()
        except RuntimeError as error:
            self._room.give_back()
            Session.is_on = False
            raise UnavailableError(f"torch's profiler cannot begin: {error}") from error
        except BaseException:
            self._leave()
            raise

    def end(self, marks: dict[int, Mark]) -> Trace:
        """End the session and read it; raises UnavailableError where that fails or another profiler took it over."""
        ended_ns = time.monotonic_ns()
        self._leave()
        result = self._profile.kineto_results
        if result is None:
            raise UnavailableError(_TAKEN)
        events = result.events() if self._of_kernels else []
        reader = _Reader(self._offset_ns, ended_ns, marks, _lists(events) if self._of_kernels else None)
        for root in result.experimental_event_tree():
            reader.read(root)
        trace = reader.trace()
        if not trace.begun:
            raise UnavailableError(_TAKEN)
        if self._gpu is not None:
            trace.activity = activity.read(events, self._gpu, self._offset_ns)
        return trace

    def _leave(self) -> None:
        self._room.give_back()
        Session.is_on = False
        if self._of_kernels or is_profiler_active():
            with process.quiet_profiler():
                self._exit()

    def _exit(self) -> None:
        self._profile.use_device = None  # else it waits for the current device, which need not be the run's
        try:
            with ExitStack() as ends:
                ends.callback(self._profile.__exit__, None, None, None)
                if self._gpu is not None:
                    process.synchronize(self._gpu)
        except RuntimeError as error:
            told = str(error).partition("\n")[0]
            raise UnavailableError(_TAKEN if _NOT_RUNNING in told else f"torch's profiler failed: {told}") from error


class _Reader:
    """Walks the event tree; events at the same time stay in the tree's order.

    With the lists among operators' arguments it tells what they compute, else the tensors they read.
    """

    def __init__(self, offset_ns: int, ended_ns: int, marks: dict[int, Mark], lists: _Lists | None) -> None:
        self._offset_ns = offset_ns
        self._ended_ns = ended_ns
        self._marks = marks
        self._lists = lists
        self._trace = Trace()
        self._regions: list[Region] = []

    def read(self, root: _ProfilerEvent) -> None:
        pending: list[tuple[_ProfilerEvent | Region, Region | None]] = [(root, None)]
        while pending:
            node, parent = pending.pop()
            if isinstance(node, Region):
                self._trace.events.append((node.end_ns, Leave(node)))
                continue
            _, fields = node.typed
            inside = parent
            if isinstance(fields, _ExtraFields_TorchOp):
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
        relate(sorted(self._regions, key=lambda region: region.start_ns))
        tell_last_runs([event for _, event in self._trace.events])
        return self._trace

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
            shapes=[_shapes(value) for value in fields.inputs],
            tensors=() if self._lists is not None else list(_tensors(fields.inputs)),
        )
        if self._lists is not None:
            region.operation, region.work = _work(node, fields, self._lists)
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
            self._trace.cpu_bytes_at_begin = _total_before(node)


def _total_before(node: _ProfilerEvent) -> int:
    """Return torch's running total for the CPU before the allocation inside the first marker."""
    pending = list(node.children)
    while pending:
        child = pending.pop(0)
        _, fields = child.typed
        if isinstance(fields, _ExtraFields_Allocation):
            return fields.total_allocated - fields.alloc_size
        pending = list(child.children) + pending
    return 0


def _memory(node: _ProfilerEvent, fields: _ExtraFields_Allocation) -> MemoryEvent:
    return MemoryEvent(
        device=device_text(fields.device),
        thread=node.start_tid,
        address=fields.ptr,
        bytes=fields.alloc_size,
        total_bytes=fields.total_allocated,
        was_tensor=fields.id is not None,
    )


def _lists(events: Sequence[_KinetoEvent]) -> _Lists:
    """Return the arguments that are no tensors, of which the event tree has the single numbers only."""
    return {
        event.correlation_id(): event.concrete_inputs()
        for event in events
        if works.has_work(event.name()) and kinds.kind_of(event) == kinds.OPERATOR
    }


def _work(node: _ProfilerEvent, fields: _ExtraFields_TorchOp, lists: _Lists) -> tuple[Operation, str | None]:
    """Return what an operator computes; tree and events of one session number it alike.

    Of a sparse tensor the shape does not tell how much there is to do.
    """
    if not works.has_work(fields.name) or any(each.layout in _SPARSE for each in _metadata(fields.inputs)):
        return works.operation_of(fields.name), None
    told = lists.get(node.correlation_id, ())
    values = [_argument(value, told[i] if i < len(told) else None) for i, value in enumerate(fields.inputs)]
    return works.told_as_text(fields.name, tuple(values), _may_be_tf32(fields))


def _argument(value: object, told: object) -> Argument:
    if isinstance(value, _TensorMetadata):
        return Operand(tuple(value.sizes), str(value.dtype).removeprefix("torch."), value.dtype.itemsize)
    if isinstance(value, list):
        return tuple(_argument(each, None) for each in value)
    return tuple(told) if isinstance(told, list) else told


def _may_be_tf32(fields: _ExtraFields_TorchOp) -> bool:
    """Return whether a GPU computes this operator's products of float32 in TF32."""
    gpus = (each.device.index or 0 for each in _metadata(fields.inputs) if each.device.type == "cuda")
    if not precision.has_tf32(next(gpus, None)):
        return False
    operation = works.operation_of_products(fields.name)
    if operation in (Operation.CONVOLUTION, Operation.RECURRENT):
        return precision.is_tf32(operation)
    return fields.allow_tf32_cublas


def _metadata(values: Sequence[object]) -> Iterator[_TensorMetadata]:
    for value in values:
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, _TensorMetadata):
                yield each


def _shapes(value: object) -> object:
    if isinstance(value, _TensorMetadata):
        return value.sizes
    return [each.sizes for each in value] if isinstance(value, list) else None


def _tensors(values: Sequence[object]) -> Iterator[SeenTensor]:
    for each in _metadata(values):
        if each.storage_data_ptr:
            elements = math.prod(each.sizes)
            yield SeenTensor(
                device=device_text(each.device),
                address=each.storage_data_ptr,
                bytes=elements * each.dtype.itemsize,
                shape=tuple(each.sizes),
            )


def device_text(device: torch.device) -> str:
    """Return "cpu" or "cuda:0"."""
    if device.type == "cpu":
        return "cpu"
    return f"{device.type}:{device.index if device.index is not None and device.index >= 0 else 0}"
