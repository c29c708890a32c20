"""MXNet's own profiler: whether the script uses it, and how to set it up so that it counts memory.

While it runs but is paused, it counts and keeps nothing else, so a run of any length costs no memory. An empty file
name keeps it from writing at the end.
"""

import mxnet as mx

from tbdprof.errors import UnavailableError
from tbdprof.hooks.on_mxnet.session import layout

_RUNNING = 1
IN_USE = "the script uses MXNet's own profiler: leave mx.profiler off while tbdprof records"


def refuse_a_running_profiler() -> None:
    """Raise UnavailableError if the script runs MXNet's profiler."""
    state, _ = layout.profiler_state()
    if state == _RUNNING:
        raise UnavailableError("MXNet's own profiler is running: leave mx.profiler off while tbdprof records")


def refuse_a_changed_profiler() -> None:
    """Raise UnavailableError if the script changed MXNet's profiler after tbdprof set it to count memory."""
    if not is_counting():
        raise UnavailableError(IN_USE)


def is_counting() -> bool:
    """Return whether MXNet's profiler counts memory and nothing else."""
    return layout.profiler_state() == (_RUNNING, layout.MEMORY_MODE)


def count_again() -> None:
    """Make MXNet's profiler count memory alone again."""
    mx.profiler.pause()
    configure(symbolic=False, api=False)


def stop_profiler() -> None:
    """Bring MXNet's profiler back to its initial state."""
    mx.profiler.set_state("stop")
    mx.profiler.resume()
    configure(symbolic=True, api=True)


def configure(*, symbolic: bool, api: bool) -> None:
    """Set the profiler up; it deletes the file whose name it is given, so the name is empty."""
    mx.profiler.set_config(
        profile_memory=True,
        profile_symbolic=symbolic,
        profile_imperative=False,
        profile_api=api,
        continuous_dump=False,
        filename="",
    )
