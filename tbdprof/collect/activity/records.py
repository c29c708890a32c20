"""What CUPTI's callbacks tell of a device's kernels, copies and sets, copied at once and made into a table.

Only fields are read that lie at the same place in every record that libcupti 12 and 13 may write, whatever record the
installed cupti-python believes it to be.
"""

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tbdprof.collect import threads
from tbdprof.collect.activity.clock_fit import Fit
from tbdprof.collect.activity.demangling import demangled
from tbdprof.facts.records import KernelKind, Strings, Table, table

# What asks the device for something. What runs on the host, and what only puts a node into a graph, does not.
_ASKING = re.compile(r"^_*(?:\w+__)?(cuda|cu|cu64)(Launch(?!HostFunc)|GraphLaunch|Memcpy|Memset)")
_LAUNCHING = re.compile(r"Launch(?!HostFunc)(?<!GraphLaunch)")
# CUpti_ActivityMemcpyKind.
_DIRECTIONS = {1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH"}


class Launch(NamedTuple):
    """The call that asked for something; the thread's number has 32 bits."""

    start: int
    thread: int


class Activity(NamedTuple):
    """Something the device did; times are CUPTI's, and 0 or -1 is what is not told."""

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
    """Return the calls that ask a device for something: names by number, by the kind of activity they are."""
    kinds = cupti.ActivityKind
    return {
        int(kinds.RUNTIME): _asking(cupti, "RuntimeApiTraceCbid", "runtime_api_trace_cbid"),
        int(kinds.DRIVER): _asking(cupti, "DriverApiTraceCbid", "driver_api_trace_cbid"),
    }


def _asking(cupti: Any, name: str, older: str) -> dict[int, str]:
    calls = getattr(cupti, name, None) or getattr(cupti, older)
    # A name that begins with two underscores, as nvcc's own launch has, is in an enumeration but no member of it.
    return {int(getattr(calls, name)): name for name in {*dir(calls), *vars(calls)} if _ASKING.search(name)}


class Records:
    """Takes what a callback is given; a view into CUPTI's memory is read before the callback returns."""

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
        """Copy what is told; it is called by CUPTI, into which nothing may be raised."""
        for activity in activities:
            try:
                taker = self._takers.get(int(activity.kind))
                if taker is not None:
                    taker(activity)
            except (AttributeError, TypeError, ValueError):  # a record of no kind that this binding reads
                self.unread += 1

    def _take_kernel(self, told: Any) -> None:
        self.activities.append(
            Activity(
                KernelKind.KERNEL,
                str(told.name),
                *_where(told),
                grid=(told.grid_x, told.grid_y, told.grid_z),
                block=(told.block_x, told.block_y, told.block_z),
                registers=told.registers_per_thread,
                shared_bytes=told.static_shared_memory + told.dynamic_shared_memory,
            )
        )

    def _take_copy(self, told: Any) -> None:
        name = f"Memcpy {_DIRECTIONS.get(int(told.copy_kind), 'PtoP')}"
        self.activities.append(Activity(KernelKind.COPY, name, *_where(told), moved_bytes=told.bytes))

    def _take_set(self, told: Any) -> None:
        self.activities.append(Activity(KernelKind.SET, "Memset", *_where(told), moved_bytes=told.bytes))

    def _take_call(self, told: Any) -> None:
        call = Launch(told.start, told.thread_id)
        known = self.launches.setdefault(told.correlation_id, call)
        if call.start < known.start:
            self.launches[told.correlation_id] = call
        if told.return_value == 0 and told.cbid in self._launching[int(told.kind)]:
            self.launched.add(told.correlation_id)


@dataclass(frozen=True, slots=True)
class Kernels:
    """The table of kernels, and how many of them lack something."""

    table: Table
    lost: int  # records that could not be read, have impossible times, or never came
    unlaunched: int  # without the call that asked for it
    early_ns: int  # the most that anything began before it was asked for: so far off is the device's clock at least


def kernels(records: Records, line: Fit, strings: Strings, number: Callable[[int], int]) -> Kernels:
    """Return what was recorded, on this process's clock.

    `number` gives a thread (`threading.get_ident`) its number in the recording; one that is not found keeps its half.
    """
    possible = [each for each in records.activities if 0 < each.start <= each.end]
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
    made = table("kernel", rows)
    asked = made[made["launch_ns"] >= 0]
    early_ns = int((asked["launch_ns"] - asked["start_ns"]).max(initial=0))
    return Kernels(made, records.unread + impossible + len(silent), launches.count(None), early_ns)


def _row(each: Activity, strings: Strings, name: int, when: tuple[int, int, int], thread: int) -> tuple[object, ...]:
    device = strings.add(f"cuda:{each.device}")
    grid, block = (strings.add(json.dumps(size)) if size else -1 for size in (each.grid, each.block))
    size = each.registers, each.shared_bytes, each.moved_bytes
    return (name, each.kind, device, each.stream, *when, -1, grid, block, *size, thread, each.graph or -1)


def _where(told: Any) -> tuple[int, int, int, int, int, int]:
    return told.start, told.end, told.device_id, told.stream_id, told.correlation_id, told.graph_id
