"""Read the file that TensorFlow's profiler writes (an XSpace) into the events of a `Trace`.

Seen in TensorFlow 2.21 on a CPU: everything is on the plane "/host:CPU", with one line per thread. An operator's event
has the name "node:Type" and the display name "Type"; in eager mode it is "EagerLocalExecute: Type". The executor
reports the number of a run around the run's operators ("ExecutorState::Process"), and each run of a function once
("FunctionRun").
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tensorflow.tsl.profiler.protobuf import xplane_pb2

from tbdprof.facts.records import AllocationKind
from tbdprof.hooks.on_tensorflow.session import gpu_planes as gpus
from tbdprof.hooks.on_tensorflow.session.events import (
    FUNCTIONS,
    MARK,
    READ_TOGETHER,
    FunctionEvent,
    HloEvent,
    MarkEvent,
    MemoryEvent,
    OpEvent,
    Trace,
)
from tbdprof.hooks.on_tensorflow.session.stats import StatReader

_HOST, _METADATA, _ENVIRONMENT = "/host:CPU", "/host:metadata", "Task Environment"
_EAGER = "EagerLocalExecute: "
_OWN_READ = f"{_EAGER}{READ_TOGETHER}"
_MEMORY = {"MemoryAllocation": AllocationKind.ALLOCATED, "MemoryDeallocation": AllocationKind.FREED}
_UNSIGNED = 1 << 64
_HLO = "hlo_op"
_OF_MEMORY = (
    "addr", "allocation_bytes", "allocator_name", "bytes_allocated", "data_type", "id", "peak_bytes_in_use",
    "region_type", "requested_bytes", "shape", "tf_op",
)  # fmt: skip
_STATS = frozenset((*_OF_MEMORY, _HLO, "hlo_module", gpus.CORRELATION))

Stats = Mapping[str, Any]
_Taker = Callable[["_Line", str, str, int, int, Stats], None]


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A name whose events are read, and the method that reads them."""

    taker: _Taker
    name: str
    display: str


def read(serialized: bytes, offset_ns: int, *, of_memory_alone: bool = False) -> Trace:
    """Return a serialized XSpace's events; `offset_ns` is the wall clock minus the monotonic clock."""
    space = xplane_pb2.XSpace.FromString(serialized)
    trace = Trace(dropped=gpus.dropped(space.warnings), errors=list(space.errors))
    planes = {plane.name: plane for plane in space.planes}
    begin_ns = _begin_ns(planes.get(_ENVIRONMENT)) - offset_ns
    if _METADATA in planes:
        trace.hlo_protos = dict(_hlo_protos(planes[_METADATA]))
    if _HOST in planes:
        host = planes[_HOST]
        wanted = {
            key: _Wanted(taker, item.name, _display(item))
            for key, item in host.event_metadata.items()
            if (taker := _taker(item)) is not None and (taker is _Line.memory or not of_memory_alone)
        }
        if not any(item.name == _HLO for item in host.stat_metadata.values()):  # XLA ran nothing
            wanted = {key: each for key, each in wanted.items() if each.taker is not _Line.hlo}
        reader = StatReader(host, _STATS)
        for line in host.lines:
            _Line(reader, line, begin_ns, trace).read(wanted)
    trace.activities = gpus.activities(planes, begin_ns)
    trace.calls = gpus.calls(planes, begin_ns) if trace.activities else {}
    for events in (trace.ops, trace.functions, trace.hlo_ops):
        events.sort(key=lambda event: (event.start_ns, -event.end_ns))
    trace.memory.sort(key=lambda event: event.time_ns)
    trace.marks.sort(key=lambda event: event.time_ns)
    return trace


class _Line:
    """One thread's events."""

    def __init__(self, reader: StatReader, line: Any, begin_ns: int, trace: Trace) -> None:
        self._reader, self._line, self._trace = reader, line, trace
        self._begin_ns = begin_ns + line.timestamp_ns
        self._runs: list[tuple[int, int, int]] = []  # runs of the executor: start, end, step
        self._calls: list[tuple[int, int, str]] = []  # calls of functions in eager mode: start, end, name
        self._run_starts: list[int] = []
        self._call_starts: list[int] = []
        self._thread = line.id

    def read(self, wanted: Mapping[int, _Wanted]) -> None:
        """Add the events to the trace, those that enclose others first."""
        around, inside = list[tuple[_Wanted, Any]](), list[tuple[_Wanted, Any]]()
        for event in self._line.events:
            each = wanted.get(event.metadata_id)
            if each is not None:
                (around if each.taker in _AROUND else inside).append((each, event))
        self._take(around)
        self._runs.sort()
        self._calls.sort()
        self._run_starts = [start_ns for start_ns, _, _ in self._runs]
        self._call_starts = [start_ns for start_ns, _, _ in self._calls]
        self._take(inside)

    def _take(self, events: Sequence[tuple[_Wanted, Any]]) -> None:
        begin_ns, read = self._begin_ns, self._reader.read
        for wanted, event in events:
            offset_ps = event.offset_ps
            start_ns = begin_ns + offset_ps // 1000
            end_ns = begin_ns + (offset_ps + event.duration_ps) // 1000
            stats = read(event.stats) if wanted.taker in _READING else _NONE
            wanted.taker(self, wanted.name, wanted.display, start_ns, end_ns, stats)

    def run(self, name: str, display: str, start_ns: int, end_ns: int, stats: Stats) -> None:
        self._runs.append((start_ns, end_ns, int(stats.get("id", 0))))

    def call(self, name: str, display: str, start_ns: int, end_ns: int, stats: Stats) -> None:
        self._calls.append((start_ns, end_ns, name.removeprefix(_EAGER)))

    def function(self, name: str, display: str, start_ns: int, end_ns: int, stats: Stats) -> None:
        # The event of a run may end before the run does; the call around it waits.
        start_ns, end_ns, called = _around(self._calls, self._call_starts, start_ns) or (start_ns, end_ns, "")
        self._trace.functions.append(FunctionEvent(called, self._thread, start_ns, end_ns, int(stats.get("id", 0))))

    def op(self, name: str, display: str, start_ns: int, end_ns: int, stats: Stats) -> None:
        node = name.removesuffix(f":{display}")
        step = (_around(self._runs, self._run_starts, start_ns) or (0, 0, 0))[2]
        self._trace.ops.append(OpEvent(self._thread, node, display, start_ns, end_ns, step))
        if display.startswith(FUNCTIONS):
            event = FunctionEvent(display, self._thread, start_ns, end_ns, step=0, is_compiled=True)
            self._trace.functions.append(event)

    def eager_op(self, name: str, display: str, start_ns: int, end_ns: int, stats: Stats) -> None:
        kind = name.removeprefix(_EAGER)
        self._trace.ops.append(OpEvent(self._thread, kind, kind, start_ns, end_ns, is_eager=True))

    def memory(self, name: str, display: str, start_ns: int, end_ns: int, stats: Stats) -> None:
        self._trace.memory.append(
            MemoryEvent(
                time_ns=start_ns,
                thread=self._thread,
                kind=_MEMORY[name],
                allocator=str(stats.get("allocator_name", "")),
                address=int(stats["addr"]) % _UNSIGNED,
                requested_bytes=int(stats["requested_bytes"]),
                allocated_bytes=int(stats["allocation_bytes"]),
                total_bytes=int(stats["bytes_allocated"]),
                peak_bytes=int(stats["peak_bytes_in_use"]),
                node=str(stats.get("tf_op", "")),
                region=str(stats.get("region_type", "")),
                dtype=int(stats.get("data_type", 0)),
                shape=str(stats.get("shape", "")),
                step=int(stats.get("id", 0)),
            )
        )

    def mark(self, name: str, display: str, start_ns: int, end_ns: int, stats: Stats) -> None:
        self._trace.marks.append(MarkEvent(name.removeprefix(MARK), self._thread, start_ns))

    def hlo(self, name: str, display: str, start_ns: int, end_ns: int, stats: Stats) -> None:
        if _HLO in stats and gpus.CORRELATION not in stats:  # else a call: its kernel names the instruction
            module = str(stats.get("hlo_module", ""))
            self._trace.hlo_ops.append(HloEvent(self._thread, name, module, start_ns, end_ns))


_AROUND = frozenset((_Line.run, _Line.call))
_READING = frozenset((_Line.run, _Line.function, _Line.memory, _Line.hlo))  # the others need only name and time
_NONE: Stats = {}


def _taker(item: Any) -> _Taker | None:
    """Return the method that reads the events of a name, or None if they are not needed."""
    name, display = item.name, _display(item)
    fixed: dict[str, _Taker] = {
        **dict.fromkeys(_MEMORY, _Line.memory),
        "FunctionRun": _Line.function,
        "ExecutorState::Process": _Line.run,
    }
    if name in fixed:
        return fixed[name]
    if name.startswith(MARK):
        return _Line.mark
    if name == _OWN_READ:
        return None
    if name.startswith(_EAGER):
        return _Line.call if name.removeprefix(_EAGER).startswith(FUNCTIONS) else _Line.eager_op
    if display and name.endswith(f":{display}"):
        return _Line.op
    is_xlas = ":" not in name and not name.startswith(("Eager", "Executor", "TFE_", "KernelAndDevice"))
    return _Line.hlo if is_xlas else None


def _display(item: Any) -> str:
    """Return an operator's type; TensorFlow leaves out that of a function whose name has signs, as of a lambda."""
    name, _, again = str(item.name).partition(":")
    return str(item.display_name) or (name if name == again and name.startswith(FUNCTIONS) else "")


def _around(intervals: list[tuple[int, int, Any]], starts: list[int], time_ns: int) -> tuple[int, int, Any] | None:
    """Return the latest interval (by start) that contains a time, or None; `starts` are those of the intervals."""
    place = bisect_right(starts, time_ns) - 1
    while place >= 0:
        if intervals[place][0] <= time_ns <= intervals[place][1]:
            return intervals[place]
        place -= 1
    return None


def _begin_ns(plane: Any) -> int:
    """Return the wall clock at the start of the session; the times of lines count from there."""
    return int(StatReader(plane).read(plane.stats).get("profile_start_time", 0)) if plane is not None else 0


def _hlo_protos(plane: Any) -> Iterator[tuple[str, bytes]]:
    reader = StatReader(plane)
    for item in plane.event_metadata.values():
        stats = reader.read(item.stats)
        if "Hlo Proto" in stats:
            yield item.name.rpartition("(")[0], bytes(stats["Hlo Proto"])
