"""Record any training loop: a warm-up until it has settled, then the windows (`loop.windows`), then nothing.

After the last window, every change to the framework is undone.
"""

import os
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import SupportsFloat, SupportsIndex, TypeVar

from tbdprof.errors import TbdprofError, UsageError
from tbdprof.facts.consumed import STEPS, Consumed
from tbdprof.facts.keys import RemarkOn
from tbdprof.facts.recorder import Recorder
from tbdprof.facts.recording import STILL_RUNNING, Recording
from tbdprof.facts.records import Run
from tbdprof.hooks import FrameworkHook
from tbdprof.loop import ending, peaks, post_mortem
from tbdprof.loop.consumption import consumed, refusal
from tbdprof.loop.defect import by_signal, defect_line, first_line
from tbdprof.loop.instruments import Instruments
from tbdprof.loop.plan import Plan, Progress, silent
from tbdprof.loop.run_facts import record_facts
from tbdprof.loop.windows import Course, Stages

Self = TypeVar("Self", bound="LoopProfiler")
Units = SupportsFloat | SupportsIndex | Consumed | None

NEVER_STARTED = Run("", "").ended_by


class LoopProfiler:
    """Profiles the loop that calls `step` after each training step; a context manager.

    An exception in the loop passes through unchanged, and what was recorded is kept. If tbdprof itself fails in a
    window, that window is given up, the recording says why, and the loop goes on.
    """

    def __init__(
        self,
        hook: FrameworkHook,
        run: Run,
        plan: Plan,
        *,
        path: Path | None = None,
        progress: Progress = silent,
        clock: Callable[[], int] = time.monotonic_ns,
        instruments: Instruments | None = None,
        pause: Callable[[], None] = lambda: None,
        per_step: float | None = None,
    ) -> None:
        """Prepare to profile a loop; a step without a count has `per_step` units, None: steps are counted.

        `pause` is called at the edges of all windows except clean ones, and at each step's end in a memory window. It
        lets the loop's own threads finish their step, and returns when none of them computes.
        """
        self._hook = hook
        self._plan = plan
        self._progress = progress
        self._clock = clock
        self._instruments = instruments or Instruments()
        self._pause = pause
        self._per_step = per_step
        self._process = os.getpid()
        self._path = path
        self._recorder = Recorder(run, None)
        self._stages: Stages | None = None
        self._course: Course | None = None
        self._calls = threading.RLock()  # one call at a time, whichever thread it comes from
        self._thread: threading.Thread | None = None  # which took the last step
        self._is_within = False  # a step is being taken
        self._stop_asked: tuple[str, BaseException | None] | None = None  # meanwhile
        self._facts_are_anothers = False  # those that the framework would report now

    @property
    def active(self) -> bool:
        """Return whether any window is left to record; always False in a forked child."""
        return self._course is not None and not self._is_forked()

    @property
    def recording(self) -> Recording:
        """Return the facts recorded so far."""
        return self._recorder.recording

    def __enter__(self: Self) -> Self:
        """Start with the warm-up."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Keep the records and detach."""
        self.stop("" if kind is None else ending.reason(error or kind), error)

    def find_peaks(self) -> None:
        """Find the device's peak, if possible before the model exists; otherwise `start` calls this."""
        peaks.find(self._hook, self._recorder, self._plan, self._progress)

    def start(self) -> None:
        """Start with the warm-up.

        Raise UsageError if this profiler was started before, or if another one records in this process. If tbdprof
        itself fails, nothing is recorded, and the recording says why.
        """
        with self._calls:
            self._refuse_another_start()
            _records.claim(self)
            try:
                self._begin()
            except TbdprofError:
                self._recorder.update(ended_by="it could not begin")
                self._leave()
                raise
            except Exception as error:  # noqa: BLE001 - no failure of tbdprof reaches the loop
                self._fail("before the first window", error)
            except BaseException:
                self._leave()
                raise

    def step(self, units: Units = None) -> None:
        """Report the end of a training step, and how many samples (or other units of work) it consumed.

        Without a count, the unit is steps. A `Consumed` also counts other units, padding and lengths. A count is any
        number from 0 to 2^53; of arrays and tensors, only those without dimensions in the CPU's memory count. After the
        last window this does nothing. Raise UsageError for anything else, before `start`, and if one step has a count
        and another has none. Raise it also in a second thread while the thread of the steps before lives: what a window
        changes in a framework is undone in the same thread.
        """
        if self._is_forked():
            return
        if self.recording.run.ended_by == NEVER_STARTED:
            raise UsageError("prof.step() before the loop began: put the loop into `with tbdprof.profile(...) as prof`")
        if self._course is None:
            return
        with self._calls:
            if self._is_within:  # from a signal's handler
                raise UsageError("prof.step() within prof.step(): report a step where it ends, and nowhere else")
            if self._course is None or self._stages is None:
                return
            self._refuse_another_thread()
            checked = self._consumed(units, is_first=self._stages.steps.taken == 0)
            self._send(self._course, self._stages, checked)

    def stop(self, ended_by: str = "", failure: BaseException | None = None, *, follows_another: bool = False) -> None:
        """End early: close the open window, keep its whole blocks, and detach. Does nothing after the last window.

        Within a step, as in a signal's handler, it takes effect at the end of that step. If another training follows,
        whose models are there by now, the facts stay as they were.
        """
        if self._course is None or self._is_forked():
            return
        with self._calls:
            if self._is_within:
                self._stop_asked = ended_by, failure
            if self._is_within or self._course is None or self._stages is None:
                return
            self._stages.loop_failed = failure is not None
            self._facts_are_anothers = follows_another
            try:
                self._course.close()
            except Exception as error:  # noqa: BLE001 - no failure of tbdprof reaches the loop
                self.recording.missing[RemarkOn.LAST_WINDOW] = first_line(error)
            finally:
                self._finish(complete=False, ended_by=ended_by or "the loop ended first", failure=failure)

    def _begin(self) -> None:
        self._recorder.update(ended_by=STILL_RUNNING)
        missing = {**self.recording.missing, **self._instruments.missing}
        self._recorder = Recorder(self.recording.run, self._path)
        self.recording.missing.update(missing)
        self.find_peaks()
        self._stages = Stages(
            self._hook,
            self._plan,
            self._instruments,
            self._recorder,
            progress=self._progress,
            clock=self._clock,
            pause=self._pause,
        )
        self._course = self._stages.course()
        next(self._course)

    def _send(self, course: Course, stages: Stages, checked: Consumed) -> None:
        """Take a step; what the loop's own work raises while the device is waited for passes through."""
        self._is_within = True
        try:
            course.send(checked)
        except StopIteration:
            self._finish(complete=True, ended_by="")
        except BaseException as error:
            if isinstance(error, Exception) and stages.failure is None and not by_signal(error):
                self._fail("outside all windows", error)
                return
            self._finish(complete=False, ended_by=ending.reason(error), failure=error)
            raise
        finally:
            self._is_within = False
            if self._stop_asked is not None:
                self.stop(*self._stop_asked)

    def _consumed(self, units: object, *, is_first: bool) -> Consumed:
        units = self._per_step if units is None else units
        if units is None:
            if is_first:
                self._recorder.update(unit=STEPS)
            if self.recording.run.unit == STEPS:
                return Consumed(1.0)
            raise refusal(units)
        checked = consumed(units)
        if self.recording.run.unit == STEPS:
            raise refusal(units)
        return checked

    def _refuse_another_start(self) -> None:
        if self.recording.run.ended_by != NEVER_STARTED:
            raise UsageError("this profiler was used already: make a new one for another loop")

    def _refuse_another_thread(self) -> None:
        here = threading.current_thread()
        if self._thread not in (None, here) and self._thread.is_alive():
            raise UsageError("prof.step() in a second thread: let one thread report the steps of all")
        self._thread = here

    def _is_forked(self) -> bool:
        return self._process != os.getpid()

    def _fail(self, where: str, error: Exception) -> None:
        """Give up the recording: tbdprof itself failed where no single window can be given up."""
        known = isinstance(error, TbdprofError)
        reason = str(error) if known else defect_line(f"{where}, where recording ended", error)
        self.recording.missing[RemarkOn.GIVEN_UP] = reason
        self._finish(complete=False, ended_by=type(error).__name__ if known else "tbdprof failed")

    def _finish(self, *, complete: bool, ended_by: str, failure: BaseException | None = None) -> None:
        """Record the last facts and detach. A failure of tbdprof meanwhile is a remark, and the rest is done."""
        self._course = None
        self._recorder.update(complete=complete, ended_by=ended_by)
        with ExitStack() as ends:  # the last one is done first
            ends.callback(self._leave)
            if failure is None:
                again = "to find the device's peak again"
                ends.callback(self._bear, again, peaks.find_again, self._hook, self._recorder, self._progress)
            ends.callback(self._bear, "to record the last facts", self._record_last_facts, failure)

    def _record_last_facts(self, failure: BaseException | None) -> None:
        post_mortem.record(failure, self._hook, self._recorder)
        if failure is None:
            peaks.find_of_products(self._hook, self._recorder)
        if not self._facts_are_anothers:
            record_facts(self._hook, self._recorder)
        self._recorder.update(whole_run_peak_bytes=self._hook.whole_run_peak_bytes)

    def _leave(self) -> None:
        """Detach from the framework, close everything, and let another profiler begin."""
        with ExitStack() as ends:
            ends.callback(_records.release, self)
            ends.callback(self._bear, "to close the file", self._recorder.close)
            ends.callback(self._bear, "to detach from the framework", self._hook.close)
            ends.callback(self._bear, "to close the instruments", self._instruments.close)

    def _bear(self, doing: str, act: Callable[..., object], *arguments: object) -> None:
        """Do something; if tbdprof fails in it, say so in the recording and raise nothing."""
        try:
            act(*arguments)
        except Exception as error:  # noqa: BLE001 - no failure of tbdprof reaches the loop
            self.recording.missing.setdefault(RemarkOn.GIVEN_UP, defect_line(doing, error))


class _Records:
    """Which profiler records in this process: one at a time, because hooks change the framework itself."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holder: weakref.ref[LoopProfiler] | None = None
        os.register_at_fork(after_in_child=self._begin_anew)

    def claim(self, profiler: LoopProfiler) -> None:
        """Let a profiler record; raise UsageError while another one does."""
        with self._lock:
            if self._holder is not None and self._holder() not in (None, profiler):
                raise UsageError(
                    "another tbdprof profiler is recording in this process: leave its `with`, or call its stop(), first"
                )
            self._holder = weakref.ref(profiler)

    def release(self, profiler: LoopProfiler) -> None:
        """Let others record, if this profiler did."""
        with self._lock:
            if self._holder is not None and self._holder() in (None, profiler):
                self._holder = None

    def _begin_anew(self) -> None:
        self._lock, self._holder = threading.Lock(), None


_records = _Records()
