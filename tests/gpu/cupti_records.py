"""CUPTI's records through cupti-python, which report MXNet's kernels: here of a loop in torch, whose are known."""

import threading
import time
from pathlib import Path

import torch
from gpu.schedule import NOT_POSSIBLE, Verdict, judged
from gpu.setting import DEVICE

from tbdprof.collect.activity.collector import ActivityCollector, available
from tbdprof.collect.activity.quality import TOLERATED_NS
from tbdprof.facts.records import KernelKind, Strings

KERNELS, COPIES, BACKWARDS = 200, 20, 100
ELEMENTS = 1 << 24


def cupti_records(_folder: Path) -> Verdict:
    """Every launch has its kernel, on this process's clock; autograd's thread runs beside, and nothing hangs."""
    reason = available()
    if reason is not None:
        return Verdict(NOT_POSSIBLE, reason)
    values = torch.zeros(ELEMENTS, device=DEVICE)
    source = torch.zeros(ELEMENTS).pin_memory()
    weight = torch.zeros(ELEMENTS, device=DEVICE, requires_grad=True)
    _work(values, source, weight, times=1)  # libraries are loaded
    collector, strings = ActivityCollector(), Strings()
    torch.cuda.synchronize()
    collector.start("kernels")
    begun_ns, events = time.monotonic_ns(), [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    events[0].record()
    _work(values, source, weight, times=0)
    events[1].record()
    torch.cuda.synchronize()
    ended_ns = time.monotonic_ns()
    collector.stop()
    collected = collector.drain(strings)
    rows = collected.tables.get("kernel")
    if rows is None:
        return judged("CUPTI's records", {"there are records": False}, {"missing": dict(collected.missing)})
    kernels, copies = (rows[rows["kind"] == kind] for kind in (KernelKind.KERNEL, KernelKind.COPY))
    mine = kernels[kernels["thread"] == threading.get_ident()]
    early_ns = int((rows["launch_ns"] - rows["start_ns"])[rows["launch_ns"] >= 0].max(initial=0))
    samples = {strings[int(row["counter"])]: float(row["value"]) for row in collected.tables["sample"]}
    busy_s = int((rows["end_ns"] - rows["start_ns"]).sum()) / 1e9
    holds = {
        "every addition is a kernel": sum("add" in strings[int(name)].lower() for name in mine["name"]) >= KERNELS,
        "every copy is reported with its bytes": copies["moved_bytes"].tolist() == [4 * ELEMENTS] * COPIES,
        "autograd's thread launched some": len(set(rows["thread"].tolist())) > 1,
        "nothing is missing": not collected.missing,
        "nothing began before it was asked for": early_ns <= TOLERATED_NS,
        "all lies within the window": begun_ns <= rows["start_ns"].min() and rows["end_ns"].max() <= ended_ns,
        "it is as long as CUDA's events say": 0.5 <= busy_s / (events[0].elapsed_time(events[1]) / 1e3) <= 1.05,
    }
    figures = {"records": len(rows), "busy_s": busy_s, "early_ns": early_ns, **samples}
    return judged("CUPTI's records", holds, {**figures, "missing": dict(collected.missing)})


def _work(values: torch.Tensor, source: torch.Tensor, weight: torch.Tensor, *, times: int) -> None:
    """Do all of the work, or each of it some times."""
    for _ in range(times or KERNELS):
        values.add_(1.0)
    for _ in range(times or COPIES):
        values.copy_(source, non_blocking=True)
    for _ in range(times or BACKWARDS):
        (weight * 2.0).sum().backward()
