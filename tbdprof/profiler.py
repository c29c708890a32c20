"""The profiler of any training loop: warm-up until settled, then the windows, one after another, then nothing.

    warm-up → clean → memory → clean → kernels → clean

Only the edges of windows and blocks wait for the device. In a clean window nothing watches; throughput comes from there
alone. In a memory window the framework's hook reports allocations and owners, in a kernels window operators with what
they compute. After the last window everything that was changed in the framework is back as it was.
"""

import math
import os
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from tbdprof import collecting, post_mortem, steady
from tbdprof.analysis.summary import Summary, summarize
from tbdprof.errors import UnavailableError, UsageError
from tbdprof.hooks import FrameworkHook
from tbdprof.instruments import Instruments
from tbdprof.plan import MINIMUM_WARMUP, SAMPLED, Plan, Progress, silent
from tbdprof.recorder import Recorder
from tbdprof.recording import STILL_RUNNING, Recording, Window, save
from tbdprof.records import Run, Table, table
from tbdprof.report.terminal import render

NEVER_STARTED = Run("", "").ended_by
STEPS = "steps"

Course = Generator[None, float, None]
StepRow = tuple[int, int, int, int, float, int]


class Profiler:
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
    ) -> None:
        self._hook = hook
        self._plan = plan
        self._progress = progress
        self._clock = clock
        self._instruments = instruments or Instruments()
        self._process = os.getpid()
        self._index = 0
        self._block = 0
        self._path = path
        self._recorder = Recorder(run, None)
        self._course: Course | None = None

    @property
    def active(self) -> bool:
        """Tell whether there are windows left to record; never in a forked child, which has none."""
        return self._course is not None and not self._is_forked()

    @property
    def recording(self) -> Recording:
        """Return the facts recorded so far."""
        return self._recorder.recording

    @property
    def summary(self) -> Summary:
        """Return everything that can be said about what was recorded so far."""
        return summarize(self.recording)

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write the recording to a file; raises UsageError where that exists or cannot be written."""
        save(self.recording, Path(path), force=force)

    def __str__(self) -> str:
        """Return the report."""
        return render(self.summary)

    def __enter__(self) -> "Profiler":
        """Begin with the warm-up."""
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Keep what there is and detach."""
        self.stop("" if kind is None else kind.__name__, error)

    def find_peaks(self) -> None:
        """Learn what the device can do, before there is a model where that can be had; `start` does it else."""
        run = self.recording.run
        if "kernels" not in self._plan.windows or run.peaks is not None:
            return
        precisions = dict.fromkeys([run.precision or "fp32", "fp32"])
        try:
            self._recorder.update(peaks=self._hook.peaks(list(precisions)))
        except UnavailableError as error:
            self.recording.missing["peaks"] = str(error)

    def start(self) -> None:
        """Begin with the warm-up; raises UsageError where this profiler began before."""
        if self.recording.run.ended_by != NEVER_STARTED:
            raise UsageError("this profiler was used already: make a new one for another loop")
        self._recorder.update(ended_by=STILL_RUNNING)
        self._recorder = Recorder(self.recording.run, self._path)
        self.recording.missing.update(self._instruments.missing)
        self.find_peaks()
        self._course = self._stages()
        next(self._course)

    def step(self, units: float | None = None) -> None:
        """Say that a training step ended, and how many samples (or other units of work) it consumed.

        Without a count, steps are counted. Raises UsageError where one step has a count and another has none.
        """
        if self._course is None or self._is_forked():
            return
        consumed = self._consumed(units)
        self._index += 1
        try:
            self._course.send(consumed)
        except StopIteration:
            self._finish(complete=True, ended_by="")
        except BaseException as error:
            self._finish(complete=False, ended_by=type(error).__name__, failure=error)
            raise

    def stop(self, ended_by: str = "", failure: BaseException | None = None) -> None:
        """End early: close the open window, keep its whole blocks, and detach. Does nothing after the last window."""
        if self._course is None or self._is_forked():
            return
        try:
            self._course.close()
        except (RuntimeError, MemoryError) as error:  # a framework tells of the loop's failure again when waited for
            self.recording.missing["last window"] = str(error).partition("\n")[0]
        finally:
            self._finish(complete=False, ended_by=ended_by or "the loop ended first", failure=failure)

    def _consumed(self, units: float | None) -> float:
        if units is None:
            if self._index == 0:
                self._recorder.update(unit=STEPS)
            if self.recording.run.unit == STEPS:
                return 1.0
        elif self.recording.run.unit != STEPS and 0 <= float(units) < math.inf:
            return float(units)
        raise UsageError(f"prof.step({units}): give every step the samples it consumed, 0 or more, or give none to any")

    def _is_forked(self) -> bool:
        return self._process != os.getpid()

    def _finish(self, *, complete: bool, ended_by: str, failure: BaseException | None = None) -> None:
        self._course = None
        self._recorder.update(complete=complete, ended_by=ended_by)
        try:
            post_mortem.record(failure, self._hook, self._recorder)
            self._tell_facts()
            self._recorder.update(whole_run_peak_bytes=self._hook.whole_run_peak_bytes)
        finally:
            with ExitStack() as ends:
                ends.callback(self._recorder.close)
                ends.callback(self._hook.close)
                ends.callback(collecting.close, self._instruments.collectors)

    def _tell_facts(self) -> None:
        facts = self._hook.facts()
        self._recorder.update(
            framework_version=facts.framework_version,
            device=facts.device,
            device_name=facts.device_name,
            threads=facts.threads,
            parameters=tuple(facts.parameters),
            optimizers=tuple(facts.optimizers),
            precision_flags=dict(facts.precision_flags),
            independent_total=self._hook.independent_total,
            watched_since=self._hook.watched_since,
        )

    def _stages(self) -> Course:
        yield from self._warm_up()
        self._tell_facts()
        for name in self._plan.windows * self._plan.repeat:
            yield from self._clean() if name == "clean" else self._watched(name)

    def _warm_up(self) -> Course:
        plan, first = self._plan, self._index
        times: list[float] = []
        with self._recorder.window("warmup") as window:
            while not self._warm(times, self._index - first):
                total = plan.warmup if plan.warmup is not None else plan.max_warmup
                rows = yield from self._warmup_block(window, first, total)
                times.append((rows[-1][3] - rows[0][2]) / len(rows))
        asked = plan.warmup is not None
        self._recorder.update(
            settled=None if asked else steady.is_settled(times),
            settled_by=f"{plan.warmup} steps, as asked" if asked else steady.METHOD,
        )

    def _warm(self, times: Sequence[float], steps: int) -> bool:
        plan = self._plan
        if plan.warmup is not None:
            return steps >= plan.warmup
        if steps >= MINIMUM_WARMUP and steady.is_settled(times):
            return True
        if plan.max_warmup is not None:
            return steps >= plan.max_warmup
        return len(times) >= 2 * steady.BLOCKS and steps >= plan.patience

    def _warmup_block(self, window: Window, first: int, total: int | None) -> Generator[None, float, list[StepRow]]:
        """Take steps until a while has passed, at least one and never more than the total of the warm-up."""
        plan, rows = self._plan, list[StepRow]()
        self._hook.synchronize()
        begun = self._clock()
        while not rows or (
            len(rows) < plan.warmup_block_steps
            and self._clock() - begun < plan.warmup_block_s * 1e9
            and self._index - first != total
        ):
            rows.append((yield from self._take_step("warm-up", first, total)))
        self._end_block(window, rows)
        return rows

    def _clean(self) -> Course:
        plan, begun, first = self._plan, self._clock(), self._index
        collectors = self._instruments.collectors
        with self._recorder.window("clean") as window, collecting.on(collectors, window, self._recorder):
            while self._index - first < plan.steps or self._clock() - begun < plan.clean_s * 1e9:
                self._hook.synchronize()
                rows = list[StepRow]()
                while len(rows) < plan.block_steps:
                    rows.append((yield from self._take_step("clean", first, plan.steps)))
                self._end_block(window, rows)

    def _watched(self, name: str) -> Course:
        """Record a window of memory or kernels, which waits at the ends of its blocks."""
        steps, block_steps = self._plan.watched(name)
        try:
            self._hook.synchronize()
            self._hook.start("kernels" if name == SAMPLED else name)
        except UnavailableError as error:
            self.recording.missing[name] = str(error)
            return
        first, rows = self._index, list[StepRow]()
        with self._recorder.window(name) as window:
            try:
                with collecting.on(self._instruments.collectors, window, self._recorder):
                    while self._index - first < steps:
                        row = yield from self._take_step(name, first, steps)
                        ends_block = (self._index - first) % block_steps == 0
                        if ends_block:
                            self._hook.synchronize()
                        self._hook.mark_step()
                        rows.append((*row[:3], self._clock(), *row[4:]))
                        self._block += ends_block
            finally:
                self._block += bool(rows) and rows[-1][1] == self._block
                self._hook.stop()
                self._drain(window, rows)

    def _drain(self, window: Window, rows: Sequence[StepRow]) -> None:
        drained = self._hook.drain(self.recording.strings)
        missing = _of_sampled(drained.missing) if window.name == SAMPLED else drained.missing
        self.recording.missing.update(missing)
        steps = _step_table(rows)
        known = min(len(steps), len(drained.marks))  # none where another profiler took the window's events
        steps["last_sequence"][:known] = drained.marks[:known]
        self._recorder.append(window, {"step": steps, **drained.tables})

    def _take_step(self, phase: str, first: int, total: int | None) -> Generator[None, float, StepRow]:
        self._progress(phase, self._index - first, total)
        begun = self._clock()
        units = yield
        return (self._index - 1, self._block, begun, self._clock(), units, -1)

    def _end_block(self, window: Window, rows: list[StepRow]) -> None:
        """Wait for the block's work, and let its last step end there."""
        self._hook.synchronize()
        steps = _step_table(rows)
        steps["end_ns"][-1] = self._clock()
        self._block += 1
        self._recorder.append(window, {"step": steps})


def _of_sampled(missing: Mapping[str, str]) -> dict[str, str]:
    """Rename a hook's reasons: to it a sampled window is a kernels window more, of which they would speak else."""
    return {SAMPLED if name == "kernels" else f"{name} ({SAMPLED})": reason for name, reason in missing.items()}


def _step_table(rows: Sequence[StepRow]) -> Table:
    return table("step", list[tuple[object, ...]](rows))
