"""Read the GPU activity that TensorFlow's profiler reports; it is a client of CUPTI itself.

Seen in TensorFlow 2.21 with a stand-in for CUPTI, not on a GPU: a plane "/device:GPU:0" has a line for each stream,
"Stream #13(Memset,Compute)". Its events carry a correlation number and, depending on their kind, "kernel_details"
("regs:32 static_shared:0 … grid:4,1,1 block:256,1,1 …"), "memcpy_details" or "memset_details" ("… size:4096 …"). The
calls that launched them carry the same number. These are on the lines of their threads, in the plane of the host or in
"/host:CUPTI".
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from tbdprof.facts.records import KernelKind
from tbdprof.hooks.on_tensorflow.session.events import CallEvent, DeviceEvent
from tbdprof.hooks.on_tensorflow.session.stats import StatReader

_DEVICE = "/device:GPU:"
_CALLS = ("/host:CPU", "/host:CUPTI")
CORRELATION = "correlation_id"
_KINDS = {
    "kernel_details": KernelKind.KERNEL,
    "memcpy_details": KernelKind.COPY,
    "memset_details": KernelKind.SET,
    "cuda_graph_exec_id": KernelKind.KERNEL,  # a whole graph, if its nodes are not reported separately
}
_GRAPHS = ("cuda_graph_id", "cuda_graph_exec_id")
_STREAM = re.compile(r"Stream #(\d+)")
_DETAIL = re.compile(r"(\w+):(\S+)")
_DROPPED = re.compile(r"(\d+) events dropped")


def activities(planes: Mapping[str, Any], begin_ns: int) -> list[DeviceEvent]:
    """Return the GPUs' activity; `begin_ns` is the start of the session on this process's clock."""
    devices = ((name.removeprefix(_DEVICE), plane) for name, plane in planes.items() if name.startswith(_DEVICE))
    found = (
        event
        for number, plane in devices
        if number.isdecimal()
        for line in plane.lines
        for event in _of_stream(f"cuda:{number}", plane, line, begin_ns)
    )
    return sorted(found, key=lambda event: event.start_ns)


def calls(planes: Mapping[str, Any], begin_ns: int) -> dict[int, CallEvent]:
    """Return the calls that launched GPU activity, by correlation number."""
    return {call.correlation: call for name in _CALLS if name in planes for call in _of_plane(planes[name], begin_ns)}


def dropped(warnings: Any) -> int:
    """Return how many GPU events the profiler says it dropped."""
    return sum(int(number) for warning in warnings for number in _DROPPED.findall(warning))


def _of_stream(device: str, plane: Any, line: Any, begin_ns: int) -> Iterator[DeviceEvent]:
    number = _STREAM.match(line.name)
    stream = int(number[1]) if number else line.id
    reader = StatReader(plane)
    for event in line.events:
        stats = reader.read(event.stats)
        named = next((name for name in _KINDS if name in stats), None)
        if named is None or CORRELATION not in stats:
            continue
        details: dict[str, str] = dict(_DETAIL.findall(str(stats[named])))
        yield DeviceEvent(
            kind=_KINDS[named],
            name=plane.event_metadata[event.metadata_id].name,
            device=device,
            stream=stream,
            start_ns=begin_ns + line.timestamp_ns + event.offset_ps // 1000,
            end_ns=begin_ns + line.timestamp_ns + (event.offset_ps + event.duration_ps) // 1000,
            correlation=int(stats[CORRELATION]),
            node=str(stats.get("tf_op", "")).rpartition(":")[0],
            hlo_op=str(stats.get("hlo_op", "")),
            hlo_module=str(stats.get("hlo_module", "")),
            graph=next((int(stats[name]) for name in _GRAPHS if stats.get(name)), -1),
            grid=_size(details.get("grid")),
            block=_size(details.get("block")),
            registers=int(details.get("regs", "-1")),
            shared_bytes=_shared_bytes(details),
            moved_bytes=int(details.get("size") or details.get("num_bytes") or -1),
        )


def _of_plane(plane: Any, begin_ns: int) -> Iterator[CallEvent]:
    wanted, reader = {key for key, item in plane.stat_metadata.items() if item.name == CORRELATION}, StatReader(plane)
    for line in plane.lines if wanted else ():
        start_ns = begin_ns + line.timestamp_ns
        for event in line.events:
            if any(stat.metadata_id in wanted for stat in event.stats):
                number = int(reader.read(event.stats)[CORRELATION])
                name = plane.event_metadata[event.metadata_id].name
                ends_ps = event.offset_ps + event.duration_ps
                yield CallEvent(name, line.id, start_ns + event.offset_ps // 1000, start_ns + ends_ps // 1000, number)


def _size(text: str | None) -> str:
    return json.dumps([int(each) for each in text.split(",")]) if text else ""


def _shared_bytes(details: Mapping[str, str]) -> int:
    parts = [details[name] for name in ("static_shared", "dynamic_shared") if name in details]
    return sum(map(int, parts)) if parts else -1
