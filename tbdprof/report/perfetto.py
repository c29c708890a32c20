"""A recording as a trace that Perfetto's UI and chrome://tracing open: Chrome's trace event format, JSON, compressed.

Processes of the trace are what has a time line: the loop (windows and steps), the host's threads (phases, layers,
operators), each device's streams (kernels, copies, memsets), and the counters. An arrow leads from the call that
launched a kernel to the kernel. Times are those of the recording, in microseconds with three decimals; nothing is
drawn whose time was not recorded. The format nests what lies within one thread by its times.
"""

import gzip
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np

from tbdprof.facts.recording import Recording, Window
from tbdprof.facts.records import KernelKind, Phase, SpanKind
from tbdprof.facts.rows import KINDS
from tbdprof.results.memory import Timeline

LOOP, HOST, COUNTERS, FIRST_DEVICE = 1, 2, 3, 10  # numbers of processes in the trace
WINDOWS, STEPS = 1, 2  # threads of the loop
_AT_ONCE = 1000  # events that are written together
_COMPRESSION = 3

Event = Mapping[str, Any]


def write(recording: Recording, memory: Timeline | None, path: Path) -> None:
    """Write a trace into a new file; memory by category is drawn where a timeline of it is given."""
    with gzip.open(path, "wt", compresslevel=_COMPRESSION, encoding="ascii") as file:
        run = recording.run
        about = {"model": run.model, "framework": run.framework, "device": run.device, "made_by": "tbdprof"}
        file.write(f'{{"displayTimeUnit":"ms","otherData":{json.dumps(about)},"traceEvents":[\n')
        _write_events(file, events(recording, memory))
        file.write("\n]}\n")


def events(recording: Recording, memory: Timeline | None) -> Iterator[Event]:
    """Yield the events of a trace."""
    devices = _devices(recording)
    yield from _names(recording, devices)
    for window in recording.windows:
        yield from _of_loop(window)
        yield from _spans(recording, window)
        yield from _kernels(recording, window, devices)
        yield from _samples(recording, window)
    if memory is not None:
        yield from _memory(memory)


def _write_events(file: IO[str], found: Iterable[Event]) -> None:
    """Write events, several at a time, separated by commas."""
    lines = (json.dumps(event, separators=(",", ":")) for event in found)
    first = True
    while block := ",\n".join(islice(lines, _AT_ONCE)):
        file.write(block if first else f",\n{block}")
        first = False


def _devices(recording: Recording) -> dict[int, int]:
    """Return the process in the trace of each device that ran kernels, by the index of its name."""
    found = {device for window in recording.windows for device in np.unique(window.table("kernel")["device"]).tolist()}
    return {device: FIRST_DEVICE + place for place, device in enumerate(sorted(found))}


def _names(recording: Recording, devices: Mapping[int, int]) -> Iterator[Event]:
    """Yield the names of the trace's processes and threads."""
    run = recording.run
    processes = {LOOP: f"{run.model or 'training loop'} ({run.framework})", HOST: "host", COUNTERS: "counters"}
    processes |= {process: recording.strings[device] for device, process in devices.items()}
    for process, name in processes.items():
        yield {"ph": "M", "name": "process_name", "pid": process, "args": {"name": name}}
        yield {"ph": "M", "name": "process_sort_index", "pid": process, "args": {"sort_index": process}}
    for thread, name in ((WINDOWS, "windows"), (STEPS, "steps")):
        yield {"ph": "M", "name": "thread_name", "pid": LOOP, "tid": thread, "args": {"name": name}}
    columns = (window.table("kernel")[["device", "stream"]] for window in recording.windows)
    streams = {row for rows in columns for row in np.unique(rows).tolist()}
    for device, stream in sorted(streams):
        name = f"stream {stream}"
        yield {"ph": "M", "name": "thread_name", "pid": devices[device], "tid": stream, "args": {"name": name}}


def _of_loop(window: Window) -> Iterator[Event]:
    steps = window.table("step")
    if not len(steps):
        return
    start, end = int(steps["start_ns"].min()), int(steps["end_ns"].max())
    yield _slice(LOOP, WINDOWS, window.name, start, end, {"window": window.ordinal, "state": window.state})
    for row in _rows(steps, "step"):
        about = {"block": row["block"], "units": row["units"]}
        yield _slice(LOOP, STEPS, f"step {row['index']}", row["start_ns"], row["end_ns"], about)


def _spans(recording: Recording, window: Window) -> Iterator[Event]:
    """Yield phases, layers and operators, by thread; the recording nests them."""
    strings = recording.strings
    for row in _rows(window.table("span"), "span"):
        kind = SpanKind(row["kind"]).name.lower()
        about = {"phase": Phase(row["phase"]).name.lower()}
        if row["shapes"] >= 0:
            about["shapes"] = strings[row["shapes"]]
        name = _text(recording, row["name"]) or ("(model)" if kind == "layer" else about["phase"])
        yield _slice(HOST, row["thread"], name, row["start_ns"], row["end_ns"], about, kind)


def _kernels(recording: Recording, window: Window, devices: Mapping[int, int]) -> Iterator[Event]:
    for place, row in enumerate(_rows(window.table("kernel"), "kernel")):
        process, kind = devices[row["device"]], KernelKind(row["kind"]).name.lower()
        about = {name: _text(recording, row[name]) for name in ("grid", "block") if row[name] >= 0}
        about |= {name: row[name] for name in ("registers", "shared_bytes", "moved_bytes", "graph") if row[name] >= 0}
        yield _slice(process, row["stream"], _text(recording, row["name"]), row["start_ns"], row["end_ns"], about, kind)
        if row["launch_ns"] >= 0 and row["thread"] >= 0:
            number = f"{window.ordinal}.{place}"
            flow = {"name": "launch", "cat": "launch", "id": number}
            yield {**flow, "ph": "s", "pid": HOST, "tid": row["thread"], "ts": _micros(row["launch_ns"])}
            at = {"pid": process, "tid": row["stream"], "ts": _micros(row["start_ns"])}
            yield {**flow, "ph": "f", "bp": "e", **at}


def _samples(recording: Recording, window: Window) -> Iterator[Event]:
    for row in _rows(window.table("sample"), "sample"):
        if not math.isfinite(row["value"]):
            continue  # JSON has no such number
        name = f"{_text(recording, row['counter'])} {_text(recording, row['device'])}".strip()
        yield _counter(name, row["time_ns"], {"value": row["value"]})


def _memory(timeline: Timeline) -> Iterator[Event]:
    """Yield memory by category; the timeline keeps the largest total of each of its stretches, the peak among them."""
    sizes = {name: values.tolist() for name, values in timeline.categories.items()}
    for place, time_ns in enumerate(timeline.time_ns.tolist()):
        yield _counter("memory by category (bytes)", time_ns, {name: values[place] for name, values in sizes.items()})


def _slice(process: int, thread: int, name: str, start_ns: int, end_ns: int, about: Event, kind: str = "loop") -> Event:
    return {
        "ph": "X",
        "name": name,
        "cat": kind,
        "pid": process,
        "tid": thread,
        "ts": _micros(start_ns),
        "dur": _micros(end_ns - start_ns),
        "args": about,
    }


def _counter(name: str, time_ns: int, values: Event) -> Event:
    return {"ph": "C", "name": name, "pid": COUNTERS, "ts": _micros(time_ns), "args": values}


def _micros(time_ns: int) -> float:
    """Return microseconds; a double keeps the nanoseconds of a monotonic clock for a hundred days."""
    return time_ns / 1000


def _rows(table: Any, kind: str) -> Iterator[dict[str, Any]]:
    names = KINDS[kind].names or ()
    for row in table.tolist():
        yield dict(zip(names, row, strict=True))


def _text(recording: Recording, index: int) -> str:
    return recording.strings[index] if index >= 0 else ""
