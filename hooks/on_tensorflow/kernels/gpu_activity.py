"""What a GPU executed in a kernels window, each assigned to the operator that launched it.

That operator is the innermost one open on the launching thread at the time of the call. If the call is not known, or no
operator was open, it is the last earlier operator with the node's name, which TensorFlow notes with every kernel.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import tensorflow as tf

from tbdprof.collect.activity.quality import DROPPED, IMPOSSIBLE, LOST_KERNELS, Quality, is_possible
from tbdprof.facts.keys import ReasonFor, RemarkOn
from tbdprof.facts.records import KernelKind, Strings
from tbdprof.facts.rows import KernelRow, Table, table
from tbdprof.hooks.on_tensorflow.session.events import CallEvent, DeviceEvent, HloEvent, OpEvent, Trace

_LAUNCH = "cuLaunch"
_UNKNOWN_REASON = "it did not find CUPTI, was not let use it, or nothing ran there"
_ONE_BY_ONE = (
    "while TensorFlow's profiler is on, XLA launches one by one the kernels that it launches as CUDA graphs otherwise: "
    "gaps between them are longer than in clean steps"
)


@dataclass(frozen=True, slots=True)
class Device:
    """A window's tables, empty if no GPU executed anything, and what they lack."""

    tables: dict[str, Table] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)


def instructions(trace: Trace) -> Iterator[HloEvent]:
    """Yield the XLA instructions that GPUs executed, each with the thread and the time of its launching call."""
    for event in trace.activities:
        call = trace.calls.get(event.correlation)
        if event.hlo_op and call is not None:
            yield HloEvent(call.thread, event.hlo_op, event.hlo_module, call.start_ns, call.end_ns)


def build(trace: Trace, spans: Table, strings: Strings) -> Device:
    """Return what the GPUs executed, with its spans; the id of a window's span is its row in `spans`.

    If TensorFlow has a GPU but reports nothing of it, `missing` holds the reason.
    """
    if not trace.activities:
        return Device(missing={ReasonFor.KERNELS: _silence(trace)} if tf.config.get_visible_devices("GPU") else {})
    places = _Places(spans, trace.ops)
    possible = [event for event in trace.activities if is_possible(event.start_ns, event.end_ns)]
    calls = [trace.calls.get(event.correlation) for event in possible]
    made = table("kernel", [_row(event, call, places, strings) for event, call in zip(possible, calls, strict=True)])
    lost = {
        LOST_KERNELS: _silent(trace),
        IMPOSSIBLE: len(trace.activities) - len(possible),
        DROPPED: trace.dropped,
    }
    quality = Quality(made, lost)
    last_ns = max((event.end_ns for event in possible), default=0)
    missing: dict[str, str] = {RemarkOn.GRAPHS: _ONE_BY_ONE} if any(event.hlo_op for event in possible) else {}
    samples = table("sample", quality.samples(strings, -1, -1, last_ns))
    return Device({"kernel": made, "sample": samples}, missing | quality.missing())


def _silence(trace: Trace) -> str:
    """Say why nothing is reported of any GPU although TensorFlow has one."""
    if trace.errors:
        said = trace.errors[0].partition("\n")[0]
    else:
        said = f"{trace.dropped} records were {DROPPED}" if trace.dropped else _UNKNOWN_REASON
    return f"TensorFlow's profiler reported no GPU: {said}"


def _silent(trace: Trace) -> int:
    """Return how many calls launched a kernel that is not reported; a call may have its kernel's name."""
    came = {event.correlation for event in trace.activities}
    kernels = {event.name for event in trace.activities if event.kind is KernelKind.KERNEL}
    silent = (call for number, call in trace.calls.items() if number not in came)
    return sum(call.name in kernels or call.name.startswith(_LAUNCH) for call in silent)


class _Places:
    """Finds the span around a launch."""

    def __init__(self, spans: Table, ops: list[OpEvent]) -> None:
        self._ends, self._parents = spans["end_ns"].tolist(), spans["parent"].tolist()
        self._rows: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)  # by thread: start and row
        for row, (thread, start_ns) in enumerate(
            zip(spans["thread"].tolist(), spans["start_ns"].tolist(), strict=True)
        ):
            self._rows[thread].append((start_ns, row))
        self._named: defaultdict[str, list[OpEvent]] = defaultdict(list)
        for op in ops:
            self._named[op.node].append(op)

    def of(self, event: DeviceEvent, call: CallEvent | None) -> int:
        """Return the row of the span, or -1 if none is known."""
        found = -1 if call is None else self._at(call.thread, call.start_ns)
        if found >= 0 or not event.node:
            return found
        named = self._named[event.node]
        before = event.start_ns if call is None else call.start_ns
        place = bisect_right(named, before, key=lambda op: op.start_ns) - 1
        return -1 if place < 0 else self._at(named[place].thread, named[place].start_ns)

    def _at(self, thread: int, time_ns: int) -> int:
        """Return a thread's innermost span at a time; of spans that begin together, the last is the innermost."""
        rows = self._rows.get(thread, [])
        place = bisect_right(rows, time_ns, key=lambda each: each[0]) - 1
        row = rows[place][1] if place >= 0 else -1
        while row >= 0 and self._ends[row] < time_ns:
            row = self._parents[row]
        return row


def _row(event: DeviceEvent, call: CallEvent | None, places: _Places, strings: Strings) -> KernelRow:
    grid, block = (strings.add(size) if size else -1 for size in (event.grid, event.block))
    launch_ns, thread = (-1, -1) if call is None else (call.start_ns, call.thread)
    return KernelRow(
        name=strings.add(event.name),
        kind=event.kind,
        device=strings.add(event.device),
        stream=event.stream,
        launch_ns=launch_ns,
        start_ns=event.start_ns,
        end_ns=event.end_ns,
        span=places.of(event, call),
        grid=grid,
        block=block,
        registers=event.registers,
        shared_bytes=event.shared_bytes,
        moved_bytes=event.moved_bytes,
        thread=thread,
        graph=event.graph,
    )
