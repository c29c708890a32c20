"""Copy the kernels, copies and memsets that CUPTI's callbacks report, and make a table of them.

Only those fields are read that have the same offset in every record that libcupti 12 and 13 may write, whatever record
the installed cupti-python takes it for.
"""

import json
import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from tbdprof.collect.activity import threads
from tbdprof.collect.activity.clock_fit import Fit
from tbdprof.collect.activity.demangling import demangled
from tbdprof.collect.activity.quality import DROPPED, IMPOSSIBLE, LOST_KERNELS, UNREADABLE, Quality, is_possible
from tbdprof.facts.records import KernelKind, Strings
from tbdprof.facts.rows import KernelRow, table

# Calls that launch work on the device. Calls that run on the host, or only add a node to a graph, do not.
_ASKING = re.compile(r"^_*(?:\w+__)?(cuda|cu|cu64)(Launch(?!HostFunc)|GraphLaunch|Memcpy|Memset)")
_LAUNCHING = re.compile(r"Launch(?!HostFunc)(?<!GraphLaunch)")
# CUpti_ActivityMemcpyKind.
_DIRECTIONS = {1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH"}


class Launch(NamedTuple):
    """The call that launched something; the number of its thread has 32 bits."""

    start: int
    thread: int


class Activity(NamedTuple):
    """Something that the device did; times are CUPTI's, and 0 or -1 means not reported."""

    kind: KernelKind
    name: str
    start: int
    end: int
    device: int
    stream: int
    correlation: int
    graph: int = 0
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    registers: int = -1
    shared_bytes: int = -1
    moved_bytes: int = -1


def asking(cupti: Any) -> dict[int, dict[int, str]]:
    """Return the calls that launch work on a device: names by number, by the kind of their activity record."""
    kinds = cupti.ActivityKind
    return {
        int(kinds.RUNTIME): _asking(cupti, "RuntimeApiTraceCbid", "runtime_api_trace_cbid"),
        int(kinds.DRIVER): _asking(cupti, "DriverApiTraceCbid", "driver_api_trace_cbid"),
    }


def _asking(cupti: Any, name: str, older: str) -> dict[int, str]:
    calls = getattr(cupti, name, None) or getattr(cupti, older)
    # A name with two leading underscores (nvcc's own launch) is an attribute of its enumeration, but not a member.
    return {int(getattr(calls, name)): name for name in {*dir(calls), *vars(calls)} if _ASKING.search(name)}


class Records:
    """Reads the records given to a callback; a view into CUPTI's memory is read before the callback returns."""

    def __init__(self, cupti: Any) -> None:
        self.activities: list[Activity] = []
        self.launches: dict[int, Launch] = {}  # by correlation: the outermost call
        self.launched: set[int] = set()  # correlations of calls that a kernel must follow
        self.unread = 0
        kinds = cupti.ActivityKind
        self._launching = {
            kind: {number for number, name in calls.items() if _LAUNCHING.search(name)}
            for kind, calls in asking(cupti).items()
        }
        self._takers: dict[int, Callable[[Any], None]] = {
            int(kinds.CONCURRENT_KERNEL): self._take_kernel,
            int(kinds.MEMCPY): self._take_copy,
            int(kinds.MEMCPY2): self._take_copy,
            int(kinds.MEMSET): self._take_set,
            **dict.fromkeys(self._launching, self._take_call),
        }

    def take(self, activities: Iterable[Any]) -> None:
        """Copy the reported records; CUPTI calls this, so nothing may be raised."""
        for activity in activities:
            try:
                taker = self._takers.get(int(activity.kind))
                if taker is not None:
                    taker(activity)
            except (AttributeError, TypeError, ValueError):  # a record of a kind that this binding cannot read
                self.unread += 1

    def _take_kernel(self, record: Any) -> None:
        self.activities.append(
            Activity(
                KernelKind.KERNEL,
                str(record.name),
                *_where(record),
                grid=(record.grid_x, record.grid_y, record.grid_z),
                block=(record.block_x, record.block_y, record.block_z),
                registers=record.registers_per_thread,
                shared_bytes=record.static_shared_memory + record.dynamic_shared_memory,
            )
        )

    def _take_copy(self, record: Any) -> None:
        name = f"Memcpy {_DIRECTIONS.get(int(record.copy_kind), 'PtoP')}"
        self.activities.append(Activity(KernelKind.COPY, name, *_where(record), moved_bytes=record.bytes))

    def _take_set(self, record: Any) -> None:
        self.activities.append(Activity(KernelKind.SET, "Memset", *_where(record), moved_bytes=record.bytes))

    def _take_call(self, record: Any) -> None:
        call = Launch(record.start, record.thread_id)
        known = self.launches.setdefault(record.correlation_id, call)
        if call.start < known.start:
            self.launches[record.correlation_id] = call
        if record.return_value == 0 and record.cbid in self._launching[int(record.kind)]:
            self.launched.add(record.correlation_id)


def kernels(records: Records, line: Fit, strings: Strings, number: Callable[[int], int], dropped: int) -> Quality:
    """Return what was recorded, on this process's clock; CUPTI dropped so many records besides.

    `number` maps a thread (`threading.get_ident`) to its number in the recording. A thread that is not found keeps the
    lower half of its number.
    """
    possible = [each for each in records.activities if is_possible(each.start, each.end)]
    impossible = len(records.activities) - len(possible)
    silent = records.launched - {each.correlation for each in records.activities}
    launches = [records.launches.get(each.correlation) for each in possible]
    of_thread = threads.whole({launch.thread for launch in launches if launch is not None})
    begun = line.convert([launch.start if launch is not None else line.origin for launch in launches])
    times = np.array([(each.start, each.end) for each in possible], "i8").reshape(-1, 2)
    start_ns, end_ns = (line.convert(column).tolist() for column in times.T)
    rows = []
    for place, (each, launch) in enumerate(zip(possible, launches, strict=True)):
        thread = -1 if launch is None else launch.thread
        thread = number(of_thread[thread]) if thread in of_thread else thread
        launch_ns = -1 if launch is None else int(begun[place])
        when = launch_ns, start_ns[place], end_ns[place]
        rows.append(_row(each, strings, strings.add(demangled(each.name)), when, thread))
    lost = {LOST_KERNELS: len(silent), IMPOSSIBLE: impossible, UNREADABLE: records.unread, DROPPED: dropped}
    return Quality(table("kernel", rows), lost, line.residual_ns)


def _row(each: Activity, strings: Strings, name: int, when: tuple[int, int, int], thread: int) -> KernelRow:
    launch_ns, start_ns, end_ns = when
    device = strings.add(f"cuda:{each.device}")
    grid, block = (strings.add(json.dumps(size)) if size else -1 for size in (each.grid, each.block))
    return KernelRow(
        name=name,
        kind=each.kind,
        device=device,
        stream=each.stream,
        launch_ns=launch_ns,
        start_ns=start_ns,
        end_ns=end_ns,
        grid=grid,
        block=block,
        registers=each.registers,
        shared_bytes=each.shared_bytes,
        moved_bytes=each.moved_bytes,
        thread=thread,
        graph=each.graph or -1,
    )


def _where(record: Any) -> tuple[int, int, int, int, int, int]:
    return record.start, record.end, record.device_id, record.stream_id, record.correlation_id, record.graph_id
