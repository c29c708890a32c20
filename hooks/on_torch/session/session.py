"""One session of torch's profiler."""

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from torch._C._autograd import _profiler_type, _ProfilerResult, _supported_activities
from torch._C._profiler import (
    ActiveProfilerType,
    ProfilerActivity,
    _ExperimentalConfig,
    _RecordFunctionFast,
)
from torch.autograd import profiler as torch_profiler
from torch.autograd.profiler import profile
from torch.profiler import ProfilerAction
from torch.profiler import profile as scheduled_profile

from tbdprof.collect.clock import wall_offset_ns
from tbdprof.errors import UnavailableError
from tbdprof.hooks.instances import instances_of
from tbdprof.hooks.on_torch import devices
from tbdprof.hooks.on_torch.session import libraries
from tbdprof.hooks.on_torch.session.malloc_headroom import Room
from tbdprof.hooks.on_torch.session.markers import WHOLE
from tbdprof.hooks.patches import Patches, Replaced
from tbdprof.hooks.threads import let_others_move

LOCK = threading.Lock()  # held while a session of all threads begins: a thread that leaves at that moment would end it
_BUSY = "a thread was still inside an operator when the window had ended: what was recorded could not be read"
TAKEN = "another torch profiler began within the window and took its events: leave it off while tbdprof records"
_WOULD_RAISE = (
    "the script's own torch profiler is to begin soon, and would raise an error in tbdprof's {} window: "
    "leave it off while tbdprof records"
)
_BEGINS = ("_prepare_profiler", "_enable_profiler")  # what each of torch's profilers calls as it begins
_OTHERS = "others"
_MOVE_S = 1.0  # at most: an operator's record is made within microseconds, unless the thread has no core
_AHEAD = 64  # steps, more than a window has
_NOT_RUNNING = "not running"  # torch 2.11 says this at the end of a session that another profiler took over


def is_profiler_active() -> bool:
    """Return whether any torch profiler is on."""
    return Session.is_on or _profiler_type() != ActiveProfilerType.NONE


def _is_another_scheduled() -> bool:
    """Return whether a profiler of the script's own, which follows a schedule, is to begin within the next steps."""
    started = [each for each in instances_of(scheduled_profile) if each.step_rec_fn is not None]  # and not stopped
    return any(map(_records_soon, started))


def _records_soon(each: scheduled_profile) -> bool:
    steps = range(each.step_num, each.step_num + _AHEAD)
    return any(each.schedule(step) != ProfilerAction.NONE for step in steps)


def reports_gpus() -> bool:
    """Return whether this build of torch can report GPU activity."""
    # Without CUPTI, torch would time operators by CUDA events, which are not kernels.
    return ProfilerActivity.CUDA in _supported_activities()


class Threads(Protocol):
    """Lets other threads join a session that one thread began."""

    def open(self) -> None:
        """Let threads join the session that this thread began."""

    def close(self) -> None:
        """Make all threads leave."""

    def end(self, end_session: Callable[[], None]) -> bool:
        """End the session; return false if it was only left, because a thread is still inside an operator."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a session recorded."""

    result: _ProfilerResult
    offset_ns: int  # the session's wall clock minus `time.monotonic_ns`
    ended_ns: int


class Session:
    """Records the operators of all threads, and their arguments, until it ends.

    With `threads`, by which other threads join, it also records every allocation. Without it, torch itself follows
    other threads, and the session records the activity of `gpu` if one is given. It gives way to a profiler that the
    script begins meanwhile, which would otherwise raise an error in the script.
    """

    is_on: ClassVar[bool] = False  # torch does not report a profiler of all threads

    def __init__(self, window: str, *, threads: Threads | None = None, gpu: str | None = None) -> None:
        if is_profiler_active():
            raise UnavailableError(f"another torch profiler is active: end it before tbdprof's {window} window begins")
        if _is_another_scheduled():
            raise UnavailableError(_WOULD_RAISE.format(window))
        self._threads = threads
        self._gpu = gpu
        self._room = Room()
        self._profile = profile(
            use_kineto=True,
            use_device=None if gpu is None else "cuda",
            profile_memory=threads is not None,
            record_shapes=True,
            experimental_config=_ExperimentalConfig(
                # Without this flag torch records no threads but autograd's; with it, it records no memory
                # (pytorch#166121).
                profile_all_threads=threads is None,
                expose_kineto_event_metadata=gpu is not None,
            ),
        )
        self._whole: _RecordFunctionFast | None = None
        self._gave_way = False
        begins = [(torch_profiler, name, self._around_begin) for name in _BEGINS if hasattr(torch_profiler, name)]
        self._patches = Patches({_OTHERS: begins})
        self._offset_ns = wall_offset_ns()
        Session.is_on = True
        try:
            before = libraries.native_threads()
            with libraries.quiet_profiler(), LOCK:
                self._profile.__enter__()  # type: ignore[no-untyped-call]
            libraries.stop_polling(before)
            if threads is not None:
                # Torch's event tree lacks what a GPU's allocator does outside any range, which is most of what Python
                # frees.
                whole = _RecordFunctionFast(WHOLE)
                whole.__enter__()
                self._whole = whole
                threads.open()
            self._patches.need(_OTHERS, _OTHERS)
        except RuntimeError as error:
            self._room.give_back()
            Session.is_on = False
            raise UnavailableError(f"torch's profiler cannot begin: {error}") from error
        except BaseException:
            self._leave()
            raise

    def end(self) -> Recorded:
        """End the session; raise UnavailableError if that fails or another profiler took it over."""
        ended_ns = time.monotonic_ns()
        if self._gave_way:
            raise UnavailableError(TAKEN)
        self._leave()
        result = self._profile.kineto_results
        if result is None:
            raise UnavailableError(TAKEN)
        return Recorded(result, self._offset_ns, ended_ns)

    def _around_begin(self, original: Replaced) -> Replaced:
        def begin(*arguments: Any, **named: Any) -> Any:
            if not self._gave_way:
                self._gave_way = True
                with suppress(Exception):  # then the script's profiler says what is wrong
                    self._leave()
            return original(*arguments, **named)

        return begin

    def _leave(self) -> None:
        self._patches.release(_OTHERS)
        self._room.give_back()
        Session.is_on = False
        whole, self._whole = self._whole, None
        if whole is not None:
            whole.__exit__(None, None, None)
        if self._threads is not None:
            self._threads.close()
        if self._threads is None or is_profiler_active():
            with libraries.quiet_profiler():
                if self._threads is None:
                    self._exit_of_all()
                elif not self._threads.end(self._exit):
                    raise UnavailableError(_BUSY)

    def _exit_of_all(self) -> None:
        """End a session of all threads once none of them still writes into it.

        Torch 2.13 itself does not wait for them: it crashed, or returned operators with false times.
        """
        libraries.stop_observing()
        let_others_move(_MOVE_S)
        self._exit()

    def _exit(self) -> None:
        self._profile.use_device = None  # otherwise it waits for the current device, which need not be the run's
        try:
            with ExitStack() as ends:
                ends.callback(self._profile.__exit__, None, None, None)
                if self._gpu is not None:
                    devices.synchronize(self._gpu)
        except RuntimeError as error:
            message = str(error).partition("\n")[0]
            raise UnavailableError(
                TAKEN if _NOT_RUNNING in message else f"torch's profiler failed: {message}"
            ) from error
