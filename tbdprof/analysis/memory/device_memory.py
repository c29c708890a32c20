"""All of a GPU's memory: from the driver and other processes up to the categories of training.

The result is a stack of layers, and each layer names its source. The layers are, from the bottom: the driver with other
processes; the context and the framework's libraries; the categories of memory at the peak; and the cache of the
framework's allocator. The context and the libraries are measured by processes that make nothing else. The sum is
compared with the memory in use that the driver (NVML) reports at the same time. The difference is unexplained memory.
It is below 0 if the layers exceed the driver's figure.
"""

from collections.abc import Iterator

import numpy as np

from tbdprof.facts.counters import (
    ALLOCATOR_ALLOCATED,
    ALLOCATOR_FRAGMENTS,
    ALLOCATOR_PRIVATE,
    ALLOCATOR_RESERVED,
    DEVICE_TOTAL,
    DEVICE_USED,
    OTHERS_USED,
    PROCESS_USED,
)
from tbdprof.facts.recording import Recording
from tbdprof.facts.records import Run
from tbdprof.facts.rows import Table
from tbdprof.facts.windows import MEMORY
from tbdprof.results.found import Found, because, reasons
from tbdprof.results.memory import CATEGORIES, DeviceMemory, Layer, Memory
from tbdprof.results.reasons import GPU_ONLY, NOT_RESERVED

BENEATH = ("allocator_cache", "driver_context", "libraries", "other_processes")  # the report has them with the memory
NOT_SAMPLED = "the driver's account of the device was not sampled in a memory window"
NOT_POOLED = "the framework does not report pools for captured graphs"
NOT_MADE_ALONE = "measured for models of the suite (`tbdprof run MODEL`), by a process that only makes a context"
NOT_BY_PROCESS = "the driver does not report what other processes use"
APART = "measured: a process that only makes one"
BY_PROCESS = "the driver's figure of this process without the allocator's"
BY_GROWTH = (
    "growth of the memory in use during the run, without the allocator's; holds if no other process started or grew"
)
NOT_HERE = (
    "the driver reports neither this process's memory nor the memory in use before it, or the "
    "allocator does not report what it reserves"
)


def measure(recording: Recording, memory: Memory | None) -> Found[DeviceMemory | None]:
    """Return the memory of the whole device, or why there is none: on a CPU, or if no memory was measured."""
    run = recording.run
    if run.device == "cpu":
        return Found(None, dict.fromkeys(("", *BENEATH), GPU_ONLY))
    if memory is None:
        return because("no memory window was recorded")
    last = _last(recording)
    reserved, process = last.get(ALLOCATOR_RESERVED), last.get(PROCESS_USED)
    held = memory.peak_bytes if reserved is None else reserved
    others = last.get(OTHERS_USED) if process is not None else None
    layers = (*_beneath(run, others, process, held), *_held(memory, reserved))
    used = last.get(DEVICE_USED)
    found = DeviceMemory(
        device=run.device,
        total_bytes=last.get(DEVICE_TOTAL, run.device_bytes),
        used_bytes=used,
        layers=layers,
        unexplained_bytes=None if used is None else used - sum(layer.size_bytes for layer in layers),
        allocator_cache_bytes=None if reserved is None else max(0, reserved - memory.peak_bytes),
        cache_at_end_bytes=_difference(reserved, last.get(ALLOCATOR_ALLOCATED)),
        fragments_bytes=last.get(ALLOCATOR_FRAGMENTS),
        private_bytes=last.get(ALLOCATOR_PRIVATE),
        context_bytes=run.context_bytes,
        libraries_bytes=run.libraries_bytes,
        others_bytes=others,
        beneath=_in_this_process(run, process, used, reserved),
    )
    return Found(found, _missing(found))


def _missing(found: DeviceMemory) -> dict[str, str]:
    """Return the reason for each part that is None."""
    parts: dict[str, tuple[object, str]] = {
        "allocator_cache": (found.allocator_cache_bytes, NOT_RESERVED),
        "driver_context": (found.context_bytes, NOT_MADE_ALONE),
        "libraries": (found.libraries_bytes, NOT_MADE_ALONE),
        "other_processes": (found.others_bytes, NOT_BY_PROCESS),
        "cache_at_end": (found.cache_at_end_bytes, NOT_RESERVED),
        "fragments": (found.fragments_bytes, NOT_RESERVED),
        "private_pools": (
            found.private_bytes,
            NOT_RESERVED if found.allocator_cache_bytes is None else NOT_POOLED,
        ),
        "beneath_allocator": (found.beneath, NOT_HERE),
        "unexplained": (found.unexplained_bytes, NOT_SAMPLED),
        "explained": (found.explained, NOT_SAMPLED),
        "used": (found.used_bytes, NOT_SAMPLED),
        "total": (found.total_bytes, NOT_SAMPLED),
    }
    return reasons(parts)


def _beneath(run: Run, others: int | None, process: int | None, held: int) -> Iterator[Layer]:
    """Yield the layers below the framework's allocator, which holds `held` bytes."""
    before, others_before = run.used_before_bytes, run.others_before_bytes
    if others is not None:
        if before is not None and others_before is not None:
            yield Layer("driver", max(0, before - others_before), "in use before the run, without other processes")
        yield Layer("other processes", others, "the driver (NVML)")
    elif before is not None:
        yield Layer("driver and other processes", before, "in use before the run")
    if run.context_bytes is not None:
        yield Layer("context", run.context_bytes, APART)
        if run.libraries_bytes is not None:
            yield Layer("libraries", run.libraries_bytes, "measured: a process that computes one small product besides")
        elif process is not None:
            yield Layer("libraries", max(0, process - held - run.context_bytes), f"{BY_PROCESS} and the context")
    elif process is not None:
        yield Layer("context and libraries", max(0, process - held), BY_PROCESS)


def _in_this_process(run: Run, process: int | None, used: int | None, reserved: int | None) -> Layer | None:
    """Return the memory of this process below its allocator, which holds `reserved` bytes, or None if not known."""
    if reserved is None:
        return None
    if process is not None:
        return Layer("context and libraries", max(0, process - reserved), BY_PROCESS)
    if used is None or run.used_before_bytes is None:
        return None
    return Layer("context and libraries", max(0, used - run.used_before_bytes - reserved), BY_GROWTH)


def _held(memory: Memory, reserved: int | None) -> Iterator[Layer]:
    for category in CATEGORIES:
        size = memory.category_at_peak(category)
        if size:
            yield Layer(category.replace("_", " "), size, "at the peak")
    if memory.rounding_at_peak_bytes:
        yield Layer("rounding", memory.rounding_at_peak_bytes, "at the peak")
    if reserved is not None:
        yield Layer("allocator cache", max(0, reserved - memory.peak_bytes), "reserved, without what the peak takes")


def _difference(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else max(0, one - other)


def _last(recording: Recording) -> dict[str, int]:
    """Return the counters of the memory windows at the end of the last step; the driver's are the nearest samples."""
    samples = _samples(recording)
    ends = samples.get(ALLOCATOR_RESERVED)
    at = int(ends["time_ns"].max()) if ends is not None else None
    found = {}
    for name, rows in samples.items():
        when = rows["time_ns"].max() if at is None else at
        found[name] = int(rows["value"][np.argmin(np.abs(rows["time_ns"] - when))])
    return found


def _samples(recording: Recording) -> dict[str, Table]:
    """Return the samples of the memory windows of the run's device, by counter."""
    windows = [window.table("sample") for window in recording.named(MEMORY)]
    if not windows:
        return {}
    rows = recording.of_device(np.concatenate(windows))
    counters = {int(index): recording.strings[int(index)] for index in np.unique(rows["counter"])}
    return {name: rows[rows["counter"] == index] for index, name in counters.items()}
