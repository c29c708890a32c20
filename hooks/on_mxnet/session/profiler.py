"""MXNet's own profiler: whether the script uses it, and how it is set up so that it counts memory.

Running but paused, it counts and keeps nothing else, so a run of any length costs it no memory; an empty file name
keeps it from writing at the end.
"""

import mxnet as mx

from tbdprof.errors import UnavailableError
from tbdprof.hooks.on_mxnet.session import layout

_RUNNING = 1
IN_USE = "the script uses MXNet's own profiler: leave mx.profiler off while tbdprof records"


def refuse_a_running_profiler() -> None:
    """Raise UnavailableError where the script runs MXNet's profiler."""
    state, _ = layout.profiler_state()
    if state == _RUNNING:
        raise UnavailableError("MXNet's own profiler is running: leave mx.profiler off while tbdprof records")


def refuse_a_changed_profiler() -> None:
    """Raise UnavailableError where the script has set MXNet's profiler up anew since it was set to count memory."""
    if not is_counting():
        raise UnavailableError(IN_USE)


def is_counting() -> bool:
    """Tell whether MXNet's profiler counts memory and nothing else."""
    return layout.profiler_state() == (_RUNNING, layout.MEMORY_MODE)


def count_again() -> None:
    """Have MXNet's profiler count memory alone, after it was used for more."""
    mx.profiler.pause()
    configure(symbolic=False, api=False)


def stop_profiler() -> None:
    """Have MXNet's profiler as it is where nobody used it."""
    mx.profiler.set_state("stop")
    mx.profiler.resume()
    configure(symbolic=True, api=True)


def configure(*, symbolic: bool, api: bool) -> None:
    """Set the profiler up; it removes a file of the name it is given, so it is given none."""
    mx.profiler.set_config(
        profile_memory=True,
        profile_symbolic=symbolic,
        profile_imperative=False,
        profile_api=api,
        continuous_dump=False,
        filename="",
    )
