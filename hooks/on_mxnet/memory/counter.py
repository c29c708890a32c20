"""MXNet's own memory counter: the total that is kept independently of what is reported.

MXNet's profiler counts the bytes live on each device after every allocation and free. Running but paused, it counts and
keeps nothing else, so a run of any length costs it no memory; an empty file name keeps it from writing at the end.
"""

import mxnet as mx

from tbdprof.errors import UnavailableError
from tbdprof.hooks.on_mxnet.memory.allocator import Allocator
from tbdprof.hooks.on_mxnet.session import layout

_STOPPED, _RUNNING = 0, 1
IN_USE = "the script uses MXNet's own profiler: leave mx.profiler off while tbdprof records"
_UNPROVEN = "MXNet's memory counter could not be read in this build"


def refuse_a_running_profiler() -> None:
    """Raise UnavailableError where the script runs MXNet's profiler."""
    state, _ = layout.profiler_state()
    if state == _RUNNING:
        raise UnavailableError("MXNet's own profiler is running: leave mx.profiler off while tbdprof records")


def refuse_a_changed_profiler() -> None:
    """Raise UnavailableError where the script has set MXNet's profiler up anew since `arm`."""
    if layout.profiler_state() != (_RUNNING, layout.MEMORY_MODE):
        raise UnavailableError(IN_USE)


def arm_again() -> None:
    """Have MXNet's profiler count as `arm` had it, after it was used for more."""
    mx.profiler.pause()
    _configure(symbolic=False, api=False)


def stop_profiler() -> None:
    """Have MXNet's profiler as it is where nobody used it."""
    mx.profiler.set_state("stop")
    mx.profiler.resume()
    _configure(symbolic=True, api=True)


def arm(allocator: Allocator) -> str | None:
    """Have MXNet count and the allocator read the counters; return why that cannot be, None where it works."""
    mx.nd.waitall()
    _configure(symbolic=False, api=False)
    mx.profiler.set_state("run")
    mx.profiler.pause()
    if layout.profiler_state() != (_RUNNING, layout.MEMORY_MODE):
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
    allocator.counters.update(counters)
    return None


def disarm() -> None:
    """Stop the counting, unless the script has taken the profiler over."""
    if layout.profiler_state() == (_RUNNING, layout.MEMORY_MODE):
        stop_profiler()


def _configure(*, symbolic: bool, api: bool) -> None:
    """Set the profiler up; it removes a file of the name it is given, so it is given none."""
    mx.profiler.set_config(
        profile_memory=True,
        profile_symbolic=symbolic,
        profile_imperative=False,
        profile_api=api,
        continuous_dump=False,
        filename="",
    )
