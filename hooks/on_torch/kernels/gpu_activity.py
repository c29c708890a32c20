"""A GPU's activity as torch's profiler reports it: kernels, copies, memsets, and the host's calls that launched them.

The profiler is the only client of CUPTI in the process. A kernel carries the number of the call that launched it. Both
carry the number of the operator around that call. Kernels are assigned by these numbers. Times are compared only to say
how far the GPU's clock may be off.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Protocol

from tbdprof.collect.activity.quality import IMPOSSIBLE, LOST_KERNELS, Quality, is_possible
from tbdprof.facts import counters
from tbdprof.facts.keys import ReasonFor
from tbdprof.facts.records import KernelKind, Strings
from tbdprof.facts.rows import KernelRow, SampleRow, Table, table
from tbdprof.hooks.on_torch.kernels import event_kinds

NO_KERNELS = (
    "torch's profiler reported no kernel of the GPU: another client of CUPTI may hold it (Nsight, DCGM, a debugger, "
    "another profiler), or the driver does not permit it"
)

_KINDS = {
    event_kinds.KERNEL: KernelKind.KERNEL,
    "concurrent_kernel": KernelKind.KERNEL,
    event_kinds.COPY: KernelKind.COPY,
    event_kinds.SET: KernelKind.SET,
}
_CALLS = (event_kinds.RUNTIME, "cuda_driver")
_OF_THREADS = (event_kinds.OPERATOR, event_kinds.ANNOTATION)
_LAUNCH = re.compile(r"cu(da)?(Launch(Cooperative)?Kernel|GraphLaunch)")
_GRAPH_LAUNCH = re.compile(r"cu(da)?GraphLaunch")
_CAPTURE = re.compile(r"cu(da)?Stream(Begin|End)Capture")
_WAIT = re.compile(r"cu(da)?(Device|Stream|Event|Ctx|Thread)Synchronize|cudaMemcpy(?!\w*Async)")
_DETAIL = re.compile(r'"(registers per thread|shared memory|grid|block|bytes|graph id)":\s*(\[[^\]]*\]|\d+)')


class KinetoEvent(event_kinds.Event, Protocol):
    """The methods of a torch profiler event that are used here."""

    def device_index(self) -> int:
        """Return the number of the GPU."""

    def device_resource_id(self) -> int:
        """Return the stream; for an event of the host, return the operating system's thread number."""

    def start_ns(self) -> int:
        """Return its start as wall time."""

    def end_ns(self) -> int:
        """Return its end as wall time."""

    def correlation_id(self) -> int:
        """Return CUPTI's number of the call; for an operator, return torch's own number."""

    def linked_correlation_id(self) -> int:
        """Return torch's number of the operator around the call, or 0 if there is none."""

    def start_thread_id(self) -> int:
        """Return torch's number of the thread."""

    def metadata_json(self) -> str:
        """Return further details: the members of a JSON object, without its braces."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of CUDA by the host."""

    name: str
    number: int  # CUPTI's number; what the call launched has the same one
    operator: int  # torch's number of the operator around the call; 0 if there is none
    thread: int  # torch's number of the thread; -1 if not reported
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Launched:
    """A kernel, copy or memset of a GPU."""

    kind: KernelKind
    name: str
    device: str
    stream: int
    number: int  # number of the call that launched it
    operator: int
    start_ns: int
    end_ns: int
    details: str


@dataclass(frozen=True, slots=True)
class Activity:
    """A window's GPU activity; times are `time.monotonic_ns`."""

    device: str  # device of the run
    calls: Sequence[Call]
    launched: Sequence[Launched]


def read(events: Iterable[KinetoEvent], device: str, offset_ns: int) -> Activity:
    """Return the GPU activity among a profiler's events; `offset_ns` is the wall clock minus `time.monotonic_ns`."""
    threads, of_host, launched = dict[int, int](), list[KinetoEvent](), list[Launched]()
    for event in events:
        kind = event_kinds.kind_of(event)
        if kind in _OF_THREADS:
            threads[event.device_resource_id()] = event.start_thread_id()
        elif kind in _CALLS:
            of_host.append(event)
        elif kind in _KINDS:
            launched.append(_launched(event, _KINDS[kind], offset_ns))
    return Activity(device, [_call(event, threads, offset_ns) for event in of_host], launched)


def _call(event: KinetoEvent, threads: Mapping[int, int], offset_ns: int) -> Call:
    operator = event.linked_correlation_id()
    # Torch gives a call the thread of the operator around it, or of the thread that ends the session if there is none.
    thread = threads.get(event.device_resource_id(), event.start_thread_id() if operator else -1)
    begin, end = event.start_ns() - offset_ns, event.end_ns() - offset_ns
    return Call(event.name(), event.correlation_id(), operator, thread, begin, end)


def _launched(event: KinetoEvent, kind: KernelKind, offset_ns: int) -> Launched:
    return Launched(
        kind=kind,
        name=event.name(),
        device=f"cuda:{event.device_index()}",
        stream=event.device_resource_id(),
        number=event.correlation_id(),
        operator=event.linked_correlation_id(),
        start_ns=event.start_ns() - offset_ns,
        end_ns=event.end_ns() - offset_ns,
        details=_details(event),
    )


def _details(event: KinetoEvent) -> str:
    try:
        return event.metadata_json()
    except AttributeError:  # this release reports details in another way
        return ""


def tables(
    activity: Activity, spans: Mapping[int, int], begin_ns: int, end_ns: int, strings: Strings
) -> tuple[dict[str, Table], dict[str, str]]:
    """Return a window's kernels and samples, and what is wrong with them.

    `spans` maps torch's number of an operator to the id of its span. What was launched before the window began is left
    out. Records with impossible times are also left out, and counted.
    """
    calls = _by_number(activity.calls)
    inside = [each for each in activity.launched if _asked_ns(each, calls) >= begin_ns]
    sound = [each for each in inside if is_possible(each.start_ns, each.end_ns)]
    lost = {LOST_KERNELS: len(_unanswered(activity, begin_ns)), IMPOSSIBLE: len(inside) - len(sound)}
    made = table("kernel", [_row(each, calls.get(each.number), spans, strings) for each in sound])
    quality = Quality(made, lost)
    samples = [
        *_waiting(activity, begin_ns, strings),
        *quality.samples(strings, strings.add(activity.device), begin_ns, end_ns),
    ]
    missing: dict[str, str] = quality.missing() if sound else {ReasonFor.KERNELS: NO_KERNELS}
    return {"kernel": made, "sample": table("sample", samples)}, missing


def _by_number(calls: Iterable[Call]) -> dict[int, Call]:
    """Return the calls by number; if one call makes another with the same number, keep the outermost."""
    found: dict[int, Call] = {}
    for call in calls:
        before = found.setdefault(call.number, call)
        if call.start_ns < before.start_ns:
            found[call.number] = call
    return found


def _asked_ns(each: Launched, calls: Mapping[int, Call]) -> int:
    call = calls.get(each.number)
    return each.start_ns if call is None else call.start_ns


def _unanswered(activity: Activity, begin_ns: int) -> list[Call]:
    """Return the launches whose kernels never ran, without those captured into a graph, which need not run."""
    captures = sorted(call.start_ns for call in activity.calls if _CAPTURE.match(call.name))
    capturing = list(pairwise(captures))[::2]
    answered = {each.number for each in activity.launched}
    return [
        calls[0]
        for calls in _nested(call for call in activity.calls if _LAUNCH.match(call.name))
        if calls[0].start_ns >= begin_ns
        and not any(call.number in answered for call in calls)
        and not any(first <= calls[0].start_ns <= last for first, last in capturing)
    ]


def _nested(calls: Iterable[Call]) -> list[list[Call]]:
    """Group calls with the calls inside them: the runtime asks the driver to launch, and both may be reported."""
    found: list[list[Call]] = []
    outermost: dict[int, list[Call]] = {}  # the last outermost call of each thread
    for call in sorted(calls, key=lambda call: (call.start_ns, -call.end_ns)):
        around = outermost.get(call.thread)
        if around is not None and call.end_ns <= around[0].end_ns:
            around.append(call)
        else:
            outermost[call.thread] = [call]
            found.append(outermost[call.thread])
    return found


def _row(each: Launched, call: Call | None, spans: Mapping[int, int], strings: Strings) -> KernelRow:
    details = dict(_DETAIL.findall(each.details))
    operator = each.operator or (0 if call is None else call.operator)
    return KernelRow(
        name=strings.add(each.name),
        kind=each.kind,
        device=strings.add(each.device),
        stream=each.stream,
        launch_ns=-1 if call is None else call.start_ns,
        start_ns=each.start_ns,
        end_ns=each.end_ns,
        span=spans.get(operator, -1),  # a kernel without an operator is assigned by thread and time
        grid=_geometry(details.get("grid"), strings),
        block=_geometry(details.get("block"), strings),
        registers=int(details.get("registers per thread", -1)),
        shared_bytes=int(details.get("shared memory", -1)),
        moved_bytes=int(details.get("bytes", -1)),
        thread=-1 if call is None else call.thread,
        graph=_graph(details, call),
    )


def _geometry(text: str | None, strings: Strings) -> int:
    return -1 if text is None else strings.add(_spaced(text))


@lru_cache(maxsize=1 << 12)
def _spaced(text: str) -> str:
    return json.dumps(json.loads(text))


def _graph(details: Mapping[str, str], call: Call | None) -> int:
    """Return the graph's number, 0 if a graph launched it but has no number, or -1 if no graph did."""
    by_graph = call is not None and _GRAPH_LAUNCH.match(call.name) is not None
    return int(details.get("graph id", 0)) or (0 if by_graph else -1)


def _waiting(activity: Activity, begin_ns: int, strings: Strings) -> list[SampleRow]:
    """Return the intervals in which a thread that launches kernels waited for the GPU."""
    device = strings.add(activity.device)
    launching = {call.thread for call in activity.calls if _LAUNCH.match(call.name)}
    waiting = strings.add(counters.SYNCHRONIZING)
    return [
        SampleRow(waiting, device, call.end_ns, 1.0, call.start_ns)
        for call in activity.calls
        if _WAIT.match(call.name) and call.start_ns >= begin_ns and call.thread in launching
    ]
