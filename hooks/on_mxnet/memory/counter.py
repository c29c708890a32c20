"""MXNet's own memory counter: a total that is independent of the reported events.

MXNet's profiler counts the live bytes of each device after every allocation and free.
"""

import mxnet as mx

from tbdprof.hooks.on_mxnet.memory.allocator import Allocator
from tbdprof.hooks.on_mxnet.session import layout, profiler

_UNPROVEN = "MXNet's memory counter could not be read in this build"


def arm(allocator: Allocator) -> str | None:
    """Make MXNet count and the allocator read the counters; return why that fails, or None if it works."""
    mx.nd.waitall()
    profiler.configure(symbolic=False, api=False)
    mx.profiler.set_state("run")
    mx.profiler.pause()
    if not profiler.is_counting():
        mx.profiler.set_state("stop")
        return _UNPROVEN
    first, size_bytes = layout.probe_array()
    counters = layout.counters(allocator.storage_profiler)
    counter = counters.get(layout.device_number(layout.CPU, 0))
    before = -1 if counter is None else counter.value
    second, _ = layout.probe_array()
    if counter is None or before != size_bytes or counter.value != 2 * size_bytes:
        mx.profiler.set_state("stop")
        return _UNPROVEN
    del first, second
    mx.nd.waitall()
    allocator.count(counters)
    return None


def disarm() -> None:
    """Stop the counting, unless the script has taken over the profiler."""
    if profiler.is_counting():
        profiler.stop_profiler()
