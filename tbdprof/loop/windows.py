"""The windows of a run, one after another: a generator that receives the units of each step when the step ends.

    warm-up → clean → memory → clean → kernels → clean

A loop that may end soon has the early windows before: memory, clean and kernels, a few steps each. A later window of
the same name replaces the early one: a clean window with its first block, a watched one when it is complete.

Only the edges of windows and blocks wait for the device. A clean window has no profiling; throughput comes from clean
windows alone. In a memory window the framework's hook reports allocations and owners. In a kernels window it reports
operators with what they compute.
"""

import traceback
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress

import numpy as np

from tbdprof.errors import UnavailableError, visible
from tbdprof.facts.consumed import Consumed
from tbdprof.facts.keys import ReasonFor, RemarkOn, of_window
from tbdprof.facts.recorder import Recorder
from tbdprof.facts.recording import Window
from tbdprof.facts.rows import StepRow
from tbdprof.facts.windows import CLEAN, KERNELS, MEMORY, SAMPLED, WARMUP
from tbdprof.hooks import Drained, FrameworkHook
from tbdprof.loop import steady
from tbdprof.loop.defect import by_signal, defect_line, first_line
from tbdprof.loop.instruments import Instruments
from tbdprof.loop.plan import EARLY, MINIMUM_WARMUP, NO_STEPS, Plan, Progress
from tbdprof.loop.run_facts import record_facts
from tbdprof.loop.steps import Steps

Course = Generator[None, Consumed, None]


class Stages:
    """Takes a loop's steps through the windows of a plan, and records each window."""

    def __init__(
        self,
        hook: FrameworkHook,
        plan: Plan,
        instruments: Instruments,
        recorder: Recorder,
        *,
        progress: Progress,
        clock: Callable[[], int],
        pause: Callable[[], None],
    ) -> None:
        self._hook = hook
        self._whole = plan
        self._plan = plan  # the part that is followed now: the early one, or the whole
        self._early: Sequence[Window] = ()  # later ones replace them
        self._instruments = instruments
        self._recorder = recorder
        self._clock = clock
        self._pause = pause
        self.steps = Steps(recorder, progress, clock)
        self.failure: Exception | None = None  # of the loop's own work, raised where this module waited for it
        self.loop_failed = False  # the loop ended by an exception of its own

    def course(self) -> Course:
        """Go from the warm-up to the last window; each step sends what it consumed.

        A window in which tbdprof fails is given up, with its reason. What the loop's own work raises passes through.
        """
        self._recorder.update(planned=self._whole.outline)
        if self._whole.early is not None:
            self._plan = self._whole.early
            yield from self._warm_up()
            yield from self._windows()
            self._plan, self._early = self._whole, tuple(self._recorder.recording.windows)
        if not self.steps.ended:
            times = yield from self._warm_up()
            self._judge(times)
            self._fit(times)
            yield from self._windows()

    def _windows(self) -> Course:
        record_facts(self._hook, self._recorder)
        for _ in range(self._plan.repeat):
            for name in self._plan.windows:
                before = len(self._recorder.recording.windows)
                try:
                    yield from self._clean() if name == CLEAN else self._watched(name)
                    if self._plan.is_together and name != CLEAN:
                        yield from self._catch_up()
                except Exception as error:
                    if self.failure is not None or by_signal(error):
                        raise
                    self._give_up(name, before, error)
                if self.steps.ended:
                    return

    def _give_up(self, name: str, ordinal: int, error: Exception) -> None:
        """Say why a window is given up; what a watched window recorded so far is dropped, because it is not whole."""
        recording = self._recorder.recording
        if self.loop_failed:  # to wait for the device may raise the loop's failure again
            recording.missing[RemarkOn.LAST_WINDOW] = first_line(error)
            return
        reason = defect_line(f"in the {name} window (window {ordinal}), which was given up", error)
        recording.missing[of_window(RemarkOn.GIVEN_UP, f"window {ordinal}")] = reason
        if name == CLEAN:
            return  # its blocks are whole; throughput has its own reason where none are left
        for window in recording.windows[ordinal:]:
            window.tables.clear()
        if not any(len(window.table("step")) for window in recording.named(name)):
            recording.missing[ReasonFor(name)] = reason

    def _warm_up(self) -> Generator[None, Consumed, list[float]]:
        """Take the steps of the warm-up, and return the time per step of its blocks."""
        plan, first, begun = self._plan, self.steps.taken, self._clock()
        times: list[float] = []
        with self._recorder.window(WARMUP) as window:
            while not self._warm(times, self.steps.taken - first, (self._clock() - begun) / 1e9):
                total = plan.warmup if plan.warmup is not None else plan.max_warmup
                times.append((yield from self._warmup_block(window, first, total)))
        return times

    def _judge(self, times: Sequence[float]) -> None:
        """Record whether the loop has settled, judged by the times per step of its warm-up."""
        plan, asked = self._plan, self._plan.warmup is not None
        self._recorder.update(
            settled=None if asked else steady.is_settled(times),
            settled_by=_why_fixed(plan) if asked else steady.METHOD,
        )

    def _fit(self, times: Sequence[float]) -> None:
        """Take more short steps in a clean window, and fewer long ones; say so if there are fewer."""
        if not times:
            return
        step_s = float(np.median(times[-steady.BLOCKS :])) / 1e9
        before, self._plan = self._plan, self._plan.fitted(step_s)
        self._recorder.update(planned=self._plan.outline)
        if self._plan.steps < before.steps:
            self._recorder.recording.missing[RemarkOn.CLEAN_STEPS] = (
                f"a step takes {step_s:.1f} s, so a clean window has {self._plan.steps} steps and not {before.steps}; "
                f"ask for {before.steps} steps to have them all"
            )

    def _warm(self, times: Sequence[float], steps: int, seconds: float) -> bool:
        plan = self._plan
        if plan.warmup is not None:
            return steps >= plan.warmup
        if steps >= MINIMUM_WARMUP and steady.is_settled(times):
            return True
        if plan.max_warmup is not None:
            return steps >= plan.max_warmup
        if seconds >= plan.warmup_s:
            return len(times) >= steady.BLOCKS
        return len(times) >= 2 * steady.BLOCKS and steps >= plan.patience

    def _warmup_block(self, window: Window, first: int, total: int | None) -> Generator[None, Consumed, float]:
        """Take whole periods for a block's time, at least one, at most `total` warm-up steps; return ns per step."""
        plan, rows = self._plan, list[StepRow]()
        self._synchronize()
        begun = self._clock()
        while not rows or (
            self.steps.taken - first != total
            and (
                len(rows) % plan.period
                or (len(rows) < plan.warmup_block_steps and self._clock() - begun < plan.warmup_block_s * 1e9)
            )
        ):
            rows.append((yield from self.steps.take("warm-up", first, total)))
        return (self._end_block(window, rows) - rows[0].start_ns) / len(rows)

    def _clean(self) -> Course:
        plan, begun, first = self._plan, self._clock(), self.steps.taken
        with self._recorder.window(CLEAN) as window, self._instruments.on(window, self._recorder):
            while self.steps.taken - first < plan.steps or self._clock() - begun < plan.clean_s * 1e9:
                self._synchronize()
                self._instruments.begin_block(CLEAN)
                rows = list[StepRow]()
                while len(rows) < plan.block_steps:
                    rows.append((yield from self.steps.take(CLEAN, first, plan.steps)))
                self._end_block(window, rows)

    def _watched(self, name: str) -> Course:
        """Record a memory, kernels or sampled window; it waits for the device at the ends of its blocks."""
        steps, block_steps = self._plan.watched(name)
        try:
            self._let_pause()
            self._synchronize()
            self._start(KERNELS if name == SAMPLED else name)
        except UnavailableError as error:
            self._recorder.recording.missing[ReasonFor(name)] = str(error)
            return
        first, rows, whole = self.steps.taken, list[StepRow](), True
        with self._recorder.window(name) as window:
            try:
                with self._instruments.on(window, self._recorder):
                    while self.steps.taken - first < steps:
                        row = yield from self.steps.take(name, first, steps)
                        ends_block = (self.steps.taken - first) % block_steps == 0
                        if name == MEMORY:
                            self._let_pause()  # owners are read while no thread changes them
                        if ends_block:
                            self._synchronize()
                        self._hook.mark_step()
                        rows.append(row._replace(end_ns=self._clock()))
                        self.steps.block += ends_block
            except Exception as error:
                whole = self.failure is not None or by_signal(error)
                raise
            finally:
                self.steps.block += bool(rows) and rows[-1].block == self.steps.block
                with nullcontext() if whole else suppress(Exception):  # the first error is the one to report
                    drained = self._take_off()
                if whole:
                    self._keep(window, rows, drained, is_complete=self.steps.taken - first == steps)

    def _catch_up(self) -> Course:
        """Let a step pass that no window counts: in it this process waits for those whose window took longer to end."""
        yield from self.steps.take("catch up", self.steps.taken, NO_STEPS)

    def _start(self, window: str) -> None:
        """Begin the hook's window; a hook that fails halfway is taken off."""
        try:
            self._hook.start(window)
        except UnavailableError:
            raise
        except Exception:
            with suppress(Exception):
                self._take_off()
            raise

    def _take_off(self) -> Drained:
        """End the hook's window, whatever is raised on the way, and return what it recorded."""
        try:
            self._let_pause()
        finally:
            self._hook.stop()
        return self._hook.drain(self._recorder.recording.strings)

    def _keep(self, window: Window, rows: Sequence[StepRow], drained: Drained, *, is_complete: bool) -> None:
        missing = _of_sampled(drained.missing) if window.name == SAMPLED else drained.missing
        self.steps.count_given(rows, drained)
        is_whole = is_complete and len(drained.tables) > 0
        if is_whole and self._early and window.name in EARLY:
            self._recorder.recording.missing.pop(ReasonFor(window.name), None)  # why the early one lacked it
        self._recorder.recording.missing.update({key: visible(reason) for key, reason in missing.items()})
        tables = self.steps.tables(rows)
        steps = tables["step"]
        known = min(len(steps), len(drained.marks))  # 0 if another profiler took the window's events
        steps["last_sequence"][:known] = drained.marks[:known]
        self._recorder.append(
            window, {**tables, **drained.tables}, instead_of=self._replaced(window) if is_whole else []
        )

    def _replaced(self, later: Window) -> list[Window]:
        return [window for window in self._early if window.name == later.name != WARMUP and window.tables]

    def _let_pause(self) -> None:
        with self._loops_own():
            self._pause()

    def _synchronize(self) -> None:
        with self._loops_own(self._hook):
            self._hook.synchronize()

    @contextmanager
    def _loops_own(self, hook: FrameworkHook | None = None) -> Iterator[None]:
        """Note what the loop's own work raises while this module waits for it; given a hook, only its framework's."""
        try:
            yield
        except Exception as error:
            if hook is None or hook.out_of_memory(error) is not None or _is_of(hook.name, error):
                self.failure = error
            raise

    def _end_block(self, window: Window, rows: list[StepRow]) -> int:
        """Wait for the device to finish the block, set the end of its last step to that time, and return it."""
        self._synchronize()
        tables, end_ns = self.steps.tables(rows), self._clock()
        tables["step"]["end_ns"][-1] = end_ns
        self._instruments.end_block(window.name)
        self.steps.block += 1
        self._recorder.append(window, tables, instead_of=self._replaced(window), may_wait=True)
        return end_ns


def _why_fixed(plan: Plan) -> str:
    return f"{plan.warmup} steps, {'the same in all processes' if plan.is_together else 'as asked'}"


def _of_sampled(missing: Mapping[str, str]) -> dict[str, str]:
    """Rename a hook's reasons: it reports a sampled window under "kernels"; file them under "sampled"."""
    return {
        ReasonFor.SAMPLED if name == ReasonFor.KERNELS else of_window(name, SAMPLED): reason
        for name, reason in missing.items()
    }


def _is_of(framework: str, error: Exception) -> bool:
    """Return whether an error is the framework's: of a class of its own, or raised in its own code."""
    raised_in = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    return framework in {name.partition(".")[0] for name in (type(error).__module__, *raised_in[-1:])}
