"""What a large recording costs to read: 1,000,000 kernels and 1,000,000 allocations, loaded and summarized.

    python tests/benchmarks/large.py [cpu] [cuda] [--records N]

Two recordings are made: on the CPU the kernels are operator spans; on a GPU they are kernels, with half as many
operators that launched them. Each has a memory window of as many allocations and frees. In processes of their own the
file is read as plain bytes, its columns are decompressed one by one, it is loaded, and it is loaded and summarized;
printed are the seconds, the CPU's seconds, and the whole process's largest resident memory (VmHWM, in MB of 10^6 bytes;
the interpreter alone and the imports alone stand beside). Exits with 1 where loading and summarizing takes 200 MB more
than the interpreter alone, or where the page of the recording is 15 MB or takes 1 GB or 20 s of the CPU.
"""

import argparse
import json
import sqlite3
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from tbdprof.analysis.summary import summarize
from tbdprof.facts.file.placing import save
from tbdprof.facts.file.reading import load
from tbdprof.facts.recording import Recording, Window
from tbdprof.facts.records import AllocationKind, Operation, Peaks, Phase, Role, Run, SpanKind, Strings
from tbdprof.facts.rows import KINDS, Table
from tbdprof.facts.work import Work, text

RECORDS = 1_000_000
BOUND_BYTES = 200_000_000  # above the interpreter's own
PAGE_BYTES, PAGE_MEMORY_BYTES, PAGE_CPU_S = 15_000_000, 1_000_000_000, 20.0
LAYERS, STEPS, GROUP, WORKS, LIVE = 50, 4, 21, 300, 1000
OPERATOR_NS, GAP_NS = 20_000, 1000
PEAKS = Peaks({"fp32": 1e11}, 1e10, {"fp32": "made up", "memory": "made up"})


def made(device: str, records: int) -> Recording:
    """Return a recording of a device with so many kernels and allocations."""
    strings = Strings()
    run = Run("large", "torch", device=device, precision="fp32", peaks=PEAKS, batch_size=8, cores=2.0)
    on_gpu = device != "cpu"
    spans = _spans(strings, records // 2 if on_gpu else records)
    watched: dict[str, Table] = {"step": _steps(spans), "span": spans}
    if on_gpu:
        watched["kernel"] = _kernels(strings, spans, device, records)
    inside = _spans(strings, max(records // 10, STEPS))
    memory = {"span": inside, "allocation": _allocations(strings, inside, device, records), "step": _steps(inside)}
    memory["owner"] = _owners(strings, memory["allocation"])
    clean = {"step": _steps(inside)}
    windows = [Window(place, name, "complete", clean) for place, name in ((0, "clean"), (2, "clean"), (4, "clean"))]
    windows += [Window(1, "memory", "complete", memory), Window(3, "kernels", "complete", watched)]
    return Recording(run, sorted(windows, key=lambda window: window.ordinal), strings)


def _spans(strings: Strings, count: int) -> Table:
    """Return operators by `GROUP`: forward those of a layer, and backward, joined to it by a number; then an update.

    In a group every second operator lies in the one before it.
    """
    rows = np.zeros(count, KINDS["span"])
    place, groups = np.arange(count), max(count // STEPS // GROUP, 3)
    group, member = place // GROUP % groups, place % GROUP
    head, inner = place - member, (member % 2 == 0) & (member > 0)
    phase = np.select([group < groups // 3, group < groups * 5 // 6], [Phase.FORWARD, Phase.BACKWARD], Phase.UPDATE)
    layer = (phase == Phase.FORWARD) & (member == 0)
    rows["id"], rows["phase"], rows["thread"] = place, phase, 1
    rows["parent"] = np.select([inner, (phase == Phase.FORWARD) & (member > 0)], [place - 1, head], -1)
    rows["kind"] = np.where(layer, SpanKind.LAYER, SpanKind.OPERATOR)
    rows["name"] = np.where(
        layer, _texts(strings, "layers.", LAYERS)[group % LAYERS], _texts(strings, "operator ", 200)[place % 200]
    )
    rows["start_ns"] = (place - inner) * OPERATOR_NS + inner * OPERATOR_NS // 2
    rows["end_ns"] = rows["start_ns"] + np.where(inner, OPERATOR_NS, 2 * OPERATOR_NS - GAP_NS)
    rows["end_ns"][layer] += (GROUP - 1) * OPERATOR_NS
    rows["first_sequence"], rows["last_sequence"] = 20 * place, 20 * place + 19
    rows["forward"] = np.where(phase == Phase.UPDATE, -1, group % max(groups // 3, 1))
    rows["shapes"], rows["work"] = -1, np.where(inner, _works(strings)[place % WORKS], -1)
    return rows


def _texts(strings: Strings, prefix: str, count: int) -> np.ndarray:  # type: ignore[type-arg]
    return np.array([strings.add(f"{prefix}{number}") for number in range(count)])


def _works(strings: Strings) -> np.ndarray:  # type: ignore[type-arg]
    sizes = [{"batch": 1, "rows": 8, "columns": 64, "inner": 1 + number} for number in range(WORKS)]
    return np.array([strings.add(text(Work(Operation.MATMUL, each, moved_bytes=999))) for each in sizes])


def _steps(spans: Table) -> Table:
    rows = np.zeros(STEPS, KINDS["step"])
    size = len(spans) // STEPS
    rows["index"] = rows["block"] = np.arange(STEPS)
    rows["start_ns"] = spans["start_ns"][::size][:STEPS]
    rows["end_ns"] = np.append(rows["start_ns"][1:], spans["end_ns"].max())
    rows["units"] = 8
    rows["last_sequence"] = spans["last_sequence"][size - 1 :: size][:STEPS]
    return rows


def _kernels(strings: Strings, spans: Table, device: str, count: int) -> Table:
    rows = np.zeros(count, KINDS["kernel"])
    launched = np.arange(count) * len(spans) // count
    rows["name"] = _texts(strings, "kernel ", 300)[np.arange(count) % 300]
    rows["device"], rows["stream"] = strings.add(device), 7 + np.arange(count) % 2
    rows["span"] = spans["id"][launched]
    rows["start_ns"] = spans["start_ns"][launched] + np.arange(count) % 2 * 5000
    rows["end_ns"] = rows["start_ns"] + 12_000
    rows["launch_ns"] = rows["start_ns"] - 5000
    for name in ("grid", "block", "registers", "shared_bytes", "moved_bytes"):
        rows[name] = -1
    return rows


def _allocations(strings: Strings, spans: Table, device: str, count: int) -> Table:
    """Return allocations that are each freed some allocations later, at addresses used again and again."""
    rows = np.zeros(count, KINDS["allocation"])
    place = np.arange(count)
    freed = (place % 2 == 1) & (place > LIVE)
    made = np.where(freed, place - LIVE - 1 + LIVE % 2, place)
    size = 512 * (1 + made % 97)
    rows["sequence"] = 1 + place * 2
    rows["kind"] = np.where(freed, AllocationKind.FREED, AllocationKind.ALLOCATED)
    rows["device"], rows["thread"] = strings.add(device), 1
    rows["address"] = 0x7F0000000000 + made // 2 * 2 % (8 * LIVE) * 0x10000 + (made % 2) * 0x7000_0000_0000
    rows["requested_bytes"] = rows["allocated_bytes"] = size
    rows["time_ns"] = place * 1000
    rows["span"] = spans["id"][place * len(spans) // count]
    rows["was_tensor"], rows["shape"] = 1, strings.add("[8, 64]")
    rows["total_bytes"] = 10**9 + np.cumsum(np.where(freed, -size, size))
    return rows


def _owners(strings: Strings, allocations: Table) -> Table:
    made = allocations[allocations["kind"] == AllocationKind.ALLOCATED][:: max(len(allocations) // 2000, 1)]
    rows = np.zeros(len(made), KINDS["owner"])
    rows["sequence"], rows["address"], rows["device"] = made["sequence"] + 1, made["address"], made["device"]
    rows["bytes"], rows["role"], rows["name"] = made["requested_bytes"], Role.GRADIENT, strings.add("layers.0.weight")
    rows["shape"] = -1
    return rows


def read_bytes(path: Path) -> None:
    """Read the file as it lies there."""
    path.read_bytes()


def decompress(path: Path) -> None:
    """Decompress every column, one after another."""
    with closing(sqlite3.connect(path)) as connection:
        for (data,) in connection.execute("SELECT data FROM column_block"):
            zlib.decompress(data)


def only_load(path: Path) -> None:
    """Load the recording."""
    load(path)


def load_and_summarize(path: Path) -> None:
    """Load the recording and work out all that can be said of it."""
    summary = summarize(load(path))
    assert summary.groups, summary.missing
    assert summary.memory, summary.missing


def nothing(_path: Path) -> None:
    """Import what the others do."""


def make_page(path: Path) -> None:
    """Load the recording and make its page."""
    from tbdprof.cli import pages

    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        pages.planned(path, page).write(summarize(load(path)))
        assert page.stat().st_size < PAGE_BYTES


TASKS: dict[str, Callable[[Path], None]] = {
    "imports alone": nothing,
    "bytes of the file": read_bytes,
    "columns, one by one": decompress,
    "load": only_load,
    "load and summarize": load_and_summarize,
}


PAGE = "page"


def peak_bytes() -> int:
    """Return the largest resident memory of this process since it began."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


def measured(task: str, path: Path) -> tuple[float, float, int]:
    """Return the seconds, the CPU's seconds and the largest memory of a task in a process of its own."""
    seconds, cpu_seconds, size = _printed(__file__, "--task", task, "--path", str(path))
    return seconds, cpu_seconds, size


def interpreter_bytes() -> int:
    """Return the largest memory of an interpreter that imports nothing."""
    program = "print([int(line.split()[1]) for line in open('/proc/self/status') if line.startswith('VmHWM')])"
    (kilobytes,) = _printed("-c", program)
    return int(kilobytes) * 1024


def _printed(*arguments: str) -> list[Any]:
    done = subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.PIPE, text=True)
    found: list[Any] = json.loads(done.stdout)
    return found


def make_file(device: str, records: int, path: Path) -> None:
    """Write a recording to a file, in a process of its own."""
    arguments = ["--task", "make", "--path", str(path), "--records", str(records), device]
    subprocess.run([sys.executable, __file__, *arguments], check=True)


def report(device: str, records: int) -> bool:
    """Print what each way to read a recording costs; return whether summarizing stays within its bound."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.tbd"
        make_file(device, records, path)
        print(f"{device}: {records:,} kernels, {records:,} allocations and frees, {path.stat().st_size / 1e6:.0f} MB")
        alone = interpreter_bytes()
        print(f"  {'interpreter alone':<20} {'':24} {alone / 1e6:6.0f} MB")
        for task in TASKS:
            seconds, cpu_seconds, size = measured(task, path)
            print(f"  {task:<20} {seconds:6.2f} s  {cpu_seconds:6.2f} s of CPU  {size / 1e6:6.0f} MB", flush=True)
        seconds, cpu_seconds, page_size = measured(PAGE, path)
        print(f"  {PAGE:<20} {seconds:6.2f} s  {cpu_seconds:6.2f} s of CPU  {page_size / 1e6:6.0f} MB", flush=True)
    return size - alone < BOUND_BYTES and page_size < PAGE_MEMORY_BYTES and cpu_seconds < PAGE_CPU_S


def main(arguments: Sequence[str]) -> int:
    """Measure each device's recording, or do one task of it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("devices", nargs="*", default=["cpu", "cuda"])
    parser.add_argument("--records", type=int, default=RECORDS)
    parser.add_argument("--task", help=argparse.SUPPRESS)
    parser.add_argument("--path", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.task == "make":
        save(made(f"{asked.devices[0]}:0" if asked.devices[0] == "cuda" else "cpu", asked.records), asked.path)
        return 0
    if asked.task:
        begun, cpu_begun = time.perf_counter(), time.process_time()
        (TASKS | {PAGE: make_page})[asked.task](asked.path)
        print(json.dumps((time.perf_counter() - begun, time.process_time() - cpu_begun, peak_bytes())))
        return 0
    return 0 if all([report(device, asked.records) for device in asked.devices]) else 1  # noqa: C419 - all of them


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
