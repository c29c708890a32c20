"""Threads whose allocations a memory window follows, besides the thread that opened the window.

Torch's profiler keeps its state per thread. A thread joins the open session, and leaves it, where tbdprof's code runs
in it: when the thread starts, when it calls a module, or when the garbage collector runs in it. At the start and end of
a window the collector runs very often for a moment, so that a running thread joins and leaves at once.

A thread that is inside an operator when a session ends would write into memory that the session has freed. So a session
ends only when every member has left or waits in Python, outside of what torch records.

Python's code may run inside a backward pass, too. No thread joins or leaves there: at the end of the pass, torch
restores the profiler that the thread had at its start.
"""

import gc
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch._C import _current_graph_task_id
from torch._C._autograd import _profiler_type
from torch._C._profiler import ActiveProfilerType
from torch.nn.modules.module import register_module_forward_pre_hook

from tbdprof.facts.keys import RemarkOn
from tbdprof.hooks.interrupts import Signals, guarded
from tbdprof.hooks.on_torch.session.libraries import quiet_log, thread_calls
from tbdprof.hooks.on_torch.session.session import LOCK
from tbdprof.hooks.on_torch.watch.module_calls import Handle, remove, uncompiled
from tbdprof.hooks.threads import are_others, frames, others_out, waits, watches_bars

JOIN_S = 0.3  # how long a window waits for running threads to join
HURRY_S = 1.0  # how long a window looks for threads that wait at its start
LEAVE_S = 5.0  # how long a window waits for running threads to leave
_POLL_S = 0.001
_NO_BACKWARD = -1  # as a number of a backward pass
_OFTEN = (1, 1 << 30, 1 << 30)  # the collector runs after each new object, and only on the youngest ones
_TORCH = str(Path(torch.__file__).parent) + os.sep
# Called from here, torch records a backward pass, an optimizer's step or the fetch of a batch. The end
# of that would write into the session's memory, even if the thread waits now.
_RECORDED = tuple(_TORCH + each + os.sep for each in ("autograd", "optim", f"utils{os.sep}data"))
NO_JOINING = "this build of torch does not let a thread join a profiler's session: other threads' memory is unknown"


class _Membership:
    """Held by a thread while it is a member; freed with the thread."""

    def __init__(self, thread: int) -> None:
        self.thread = thread


_BUSY: set[int] = set()  # threads within `check`


class Members:
    """Lets other threads join a session after `open`, and makes them leave it at `close`."""

    def __init__(self) -> None:
        self._calls = thread_calls()
        self._pid = os.getpid()
        self._is_open = False
        self._owner = 0
        self._session: int | None = None
        self._own = threading.local()
        self._all: list[weakref.ref[_Membership]] = []  # all memberships so far
        self._handles: list[Handle] = []
        self._hurry: _Hurry | None = None
        self._leave_by = 0.0  # when a closed window gives up waiting
        self._have_joined = False  # all threads, when owners were last read
        self._profile_before: Callable[..., Any] | None = None

    @property
    def missing(self) -> dict[str, str]:
        """Why threads cannot join, if there are other threads."""
        return {} if self._calls is not None or not are_others() else {RemarkOn.THREADS: NO_JOINING}

    def open(self) -> None:
        """Let threads join the session that this thread began; wait a moment for running threads."""
        if self._calls is None:
            return
        self._owner, self._session = threading.get_ident(), self._calls.state(False)
        with LOCK:
            self._is_open = True
        self._profile_before = threading.getprofile()
        threading.setprofile(self._started)
        if are_others():
            self._listen()
            self._hurry = _Hurry(self.check)
            self._wait(JOIN_S, lambda: self._running(joined=False))

    def look(self) -> bool:
        """Return whether the end of this step still looks for what threads made before they joined.

        It is the last to look if all threads have joined by now: the reading that follows may take long, and a thread
        may join and allocate meanwhile.
        """
        if self._hurry is None:
            return False
        self._have_joined = not self._running(joined=False, waiting=True)
        return True

    def step_ended(self) -> None:
        """Stop looking for threads, once all had joined before this step's end or the time for it is over."""
        if self._hurry is not None and self._is_open and (self._have_joined or time.monotonic() > self._hurry.until):
            self._calm()

    def _calm(self) -> None:
        hurry, self._hurry = self._hurry, None
        if hurry is not None:
            hurry.end()

    def close(self) -> None:
        """Make all threads leave, and wait for running ones."""
        if self._calls is None or not self._is_open:
            return
        with LOCK:
            self._is_open = False
        if threading.getprofile() == self._started:
            threading.setprofile(self._profile_before)
        self._calm()
        self._leave_by = time.monotonic() + LEAVE_S
        if self._members():
            self._wait_for_leaving()
        else:
            self._silence()

    def _wait_for_leaving(self) -> None:
        self._hurry = _Hurry(self.check)
        try:
            self._wait(self._leave_by - time.monotonic(), lambda: self._running(joined=True))
        finally:
            self._calm()

    def end(self, end_session: Callable[[], None]) -> bool:
        """End the session; return false if it was only left, because a thread is still inside an operator."""
        if self._calls is None or not self._all:
            end_session()
            return True
        while not self._ended(end_session):
            if time.monotonic() > self._leave_by:
                self._left()
                return False
            self._wait_for_leaving()  # a member that waited has gone on meanwhile
        return True

    def _ended(self, end_session: Callable[[], None]) -> bool:
        with quiet_log(), others_out():
            if self._running(joined=True):
                return False
            end_session()
            if self._calls is not None:
                self._calls.forget()  # torch did this only for the thread that joined last
        return True

    @uncompiled
    @guarded
    def check(self, *_: object) -> None:
        """Join the session if it is open, leave it if it is closed; acts on the calling thread."""
        thread = threading.get_ident()
        is_member = getattr(self._own, "membership", None) is not None
        if self._calls is None:
            return
        if is_member == self._is_open or self._is_barred(thread) or _is_backward():
            return
        _BUSY.add(thread)  # the collector may run while this thread holds the lock
        try:
            with LOCK:
                if is_member and not self._calls.state(True):
                    self._leave()
                elif self._is_open and not watches_bars():
                    self._join(thread)
        finally:
            _BUSY.discard(thread)

    def act(self, action: Callable[[], object]) -> None:
        """Do something that the session is to record; inside a backward pass, the thread joins for this alone."""
        self.check()
        thread, calls = threading.get_ident(), self._calls
        if calls is None or not self._is_open or self._is_barred(thread) or not _is_backward():
            action()
            return
        _BUSY.add(thread)
        try:
            with LOCK:
                joins = calls.is_on() and _profiler_type() == ActiveProfilerType.NONE
                if joins:
                    self._joined()
                action()
                if joins:
                    self._left()
        finally:
            _BUSY.discard(thread)

    def _is_barred(self, thread: int) -> bool:
        return thread == self._owner or thread in _BUSY or os.getpid() != self._pid

    def _join(self, thread: int) -> None:
        calls = self._calls
        # Autograd's own threads joined already, through the thread that waits for them.
        if calls is None or not calls.is_on() or _profiler_type() != ActiveProfilerType.NONE:
            return
        self._own.membership = membership = _Membership(thread)
        self._all.append(weakref.ref(membership))
        self._joined()

    def _joined(self) -> None:
        assert self._calls is not None
        with quiet_log():  # torch warns, because the callback belongs to another thread
            self._calls.drop(self._session)
            self._calls.join()

    def _leave(self) -> None:
        self._own.membership = None
        self._left()
        if not self._members():
            self._silence()

    def _left(self) -> None:
        if self._calls is not None and _profiler_type() != ActiveProfilerType.NONE:
            with quiet_log():
                self._calls.leave()
            self._calls.forget()

    def _members(self) -> set[int]:
        return {membership.thread for each in list(self._all) if (membership := each()) is not None}

    def _running(self, *, joined: bool, waiting: bool = False) -> bool:
        """Return whether a thread runs that is a member, or that is not; with `waiting`, count waiting threads too."""
        members = self._members()
        return any(
            (thread in members) == joined and (waiting or not waits(frame, _RECORDED))
            for thread, frame in frames().items()
            if thread != self._owner
        )

    @staticmethod
    def _wait(seconds: float, is_to_wait: Callable[[], bool]) -> None:
        until = time.monotonic() + seconds
        while is_to_wait() and time.monotonic() < until:
            time.sleep(_POLL_S)

    @uncompiled
    def _started(self, frame: FrameType, event: str, argument: object) -> None:
        """Join as a new thread; called in place of the thread's profile function."""
        before = self._profile_before
        sys.setprofile(before)
        self._listen()
        self.check()
        if before is not None:
            before(frame, event, argument)

    def _listen(self) -> None:
        if not self._handles:
            self._handles = [register_module_forward_pre_hook(self.check)]  # stays until the last member has left

    def _silence(self) -> None:
        remove(self._handles)


class _Hurry:
    """Makes the garbage collector run very often until `end`, and calls a function in each thread where it runs."""

    def __init__(self, check: Callable[..., None]) -> None:
        self.until = time.monotonic() + HURRY_S
        self._check = check
        self._thresholds = gc.get_threshold()
        self._signals = Signals()
        self._signals.install()  # an exception of a signal handler inside the function would be lost
        gc.callbacks.append(check)
        if gc.isenabled():
            gc.set_threshold(*_OFTEN)

    def end(self) -> None:
        """Let the collector run as often as before."""
        if gc.get_threshold() == _OFTEN:
            gc.set_threshold(*self._thresholds)
        if self._check in gc.callbacks:
            gc.callbacks.remove(self._check)
        self._signals.restore()


def _is_backward() -> bool:
    """Return whether a backward pass runs around this thread's code."""
    return _current_graph_task_id() != _NO_BACKWARD
