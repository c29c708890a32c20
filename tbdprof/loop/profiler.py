"""Record any training loop: a warm-up until it has settled, then the windows (`loop.windows`), then nothing.

After the last window, every change to the framework is undone.
"""

import math
import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from tbdprof.errors import UnavailableError, UsageError
from tbdprof.facts.consumed import Consumed
from tbdprof.facts.keys import ReasonFor, RemarkOn
from tbdprof.facts.recorder import Recorder
from tbdprof.facts.recording import STILL_RUNNING, Recording
from tbdprof.facts.records import Run
from tbdprof.facts.windows import KERNELS
from tbdprof.hooks import FrameworkHook
from tbdprof.loop import ending, post_mortem
from tbdprof.loop.instruments import Instruments
from tbdprof.loop.plan import NO_STEPS, Plan, Progress, silent
from tbdprof.loop.windows import Course, Stages, record_facts

Self = TypeVar("Self", bound="LoopProfiler")

NEVER_STARTED = Run("", "").ended_by
STEPS = "steps"


class LoopProfiler:
    """Profiles the loop that calls `step` after each training step; a context manager.

    An exception in the loop passes through unchanged, and what was recorded is kept.
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
    ) -> None:
        """Prepare to profile a loop.

        `pause` is called at the edges of all windows except clean ones, and at each step's end in a memory window. It
        lets the loop's own threads finish their step, and returns when none of them computes.
        """
        self._hook = hook
        self._plan = plan
        self._progress = progress
        self._clock = clock
        self._instruments = instruments or Instruments()
        self._pause = pause
        self._process = os.getpid()
        self._path = path
        self._recorder = Recorder(run, None)
        self._stages: Stages | None = None
        self._course: Course | None = None

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
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Keep the records and detach."""
        self.stop("" if kind is None else ending.reason(error or kind), error)

    def find_peaks(self) -> None:
        """Find the device's peak, if possible before the model exists; otherwise `start` calls this."""
        run, missing = self.recording.run, self.recording.missing
        if KERNELS not in self._plan.windows or run.peaks is not None or ReasonFor.PEAKS in missing:
            return
        self._progress("find the device's peak", 0, NO_STEPS)
        precisions = dict.fromkeys([run.precision or "fp32", "fp32"])
        try:
            self._recorder.update(peaks=self._hook.peaks(list(precisions)))
        except UnavailableError as error:
            missing[ReasonFor.PEAKS] = str(error)

    def start(self) -> None:
        """Start with the warm-up; raise UsageError if this profiler was started before."""
        if self.recording.run.ended_by != NEVER_STARTED:
            raise UsageError("this profiler was used already: make a new one for another loop")
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

    def step(self, units: float | Consumed | None = None) -> None:
        """Report the end of a training step, and how many samples (or other units of work) it consumed.

        Without a count, the unit is steps. A `Consumed` also counts other units, padding and lengths. Raise UsageError
        if one step has a count and another has none.
        """
        if self._course is None or self._stages is None or self._is_forked():
            return
        consumed = self._consumed(units, is_first=self._stages.steps == 0)
        try:
            self._course.send(consumed)
        except StopIteration:
            self._finish(complete=True, ended_by="")
        except BaseException as error:
            self._finish(complete=False, ended_by=ending.reason(error), failure=error)
            raise

    def stop(self, ended_by: str = "", failure: BaseException | None = None) -> None:
        """End early: close the open window, keep its whole blocks, and detach. Does nothing after the last window."""
        if self._course is None or self._is_forked():
            return
        try:
            self._course.close()
        except (RuntimeError, MemoryError) as error:  # a synchronization may raise the loop's failure again
            self.recording.missing[RemarkOn.LAST_WINDOW] = str(error).partition("\n")[0]
        finally:
            self._finish(complete=False, ended_by=ended_by or "the loop ended first", failure=failure)

    def _consumed(self, units: float | Consumed | None, *, is_first: bool) -> Consumed:
        if units is None:
            if is_first:
                self._recorder.update(unit=STEPS)
            if self.recording.run.unit == STEPS:
                return Consumed(1.0)
        elif self.recording.run.unit != STEPS:
            consumed = units if isinstance(units, Consumed) else Consumed(float(units))
            if all(0 <= value < math.inf for value in (consumed.units, *(value for *_, value in consumed.counts()))):
                return consumed
        raise UsageError(f"prof.step({units}): give every step the samples it consumed, 0 or more, or give none to any")

    def _is_forked(self) -> bool:
        return self._process != os.getpid()

    def _finish(self, *, complete: bool, ended_by: str, failure: BaseException | None = None) -> None:
        self._course = None
        self._recorder.update(complete=complete, ended_by=ended_by)
        try:
            post_mortem.record(failure, self._hook, self._recorder)
            record_facts(self._hook, self._recorder)
            self._recorder.update(whole_run_peak_bytes=self._hook.whole_run_peak_bytes)
        finally:
            with ExitStack() as ends:
                ends.callback(self._recorder.close)
                ends.callback(self._hook.close)
                ends.callback(self._instruments.close)
