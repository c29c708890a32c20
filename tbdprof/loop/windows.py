"""The windows of a run, one after another: a generator that receives the units of each step when the step ends.

    warm-up → clean → memory → clean → kernels → clean

A loop that may end soon has the early windows before: memory, clean and kernels, a few steps each. A later window of
the same name replaces the early one: a clean window with its first block, a watched one when it is complete.

Only the edges of windows and blocks wait for the device. A clean window has no profiling; throughput comes from clean
windows alone. In a memory window the framework's hook reports allocations and owners. In a kernels window it reports
operators with what they compute.
"""

import statistics
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress

from tbdprof.errors import UnavailableError, visible
from tbdprof.facts.batches import SAMPLES
from tbdprof.facts.consumed import Consumed, StepCountKind
from tbdprof.facts.keys import ReasonFor, RemarkOn, of_window
from tbdprof.facts.recorder import Recorder
from tbdprof.facts.recording import Window
from tbdprof.facts.records import Run
from tbdprof.facts.rows import StepCountRow, StepRow, Tables, table
from tbdprof.facts.windows import CLEAN, KERNELS, MEMORY, SAMPLED, WARMUP
from tbdprof.hooks import Drained, Facts, FrameworkHook
from tbdprof.loop import steady
from tbdprof.loop.defect import by_signal, defect_line, first_line
from tbdprof.loop.instruments import Instruments
from tbdprof.loop.plan import EARLY, MINIMUM_WARMUP, NO_STEPS, Plan, Progress

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
        self._progress = progress
        self._clock = clock
        self._pause = pause
        self.steps = 0  # taken so far
        self.failure: Exception | None = None  # of the loop's own work, raised where this module waited for it
        self.loop_failed = False  # the loop ended by an exception of its own
        self._ended = False  # the loop ended before the course
        self._block = 0
        self._counts: list[StepCountRow] = []  # of steps whose rows are not written yet

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
        if not self._ended:
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
                if self._ended:
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
        plan, first, begun = self._plan, self.steps, self._clock()
        times: list[float] = []
        with self._recorder.window(WARMUP) as window:
            while not self._warm(times, self.steps - first, (self._clock() - begun) / 1e9):
                total = plan.warmup if plan.warmup is not None else plan.max_warmup
                rows = yield from self._warmup_block(window, first, total)
                times.append((rows[-1].end_ns - rows[0].start_ns) / len(rows))
        return times

    def _judge(self, times: Sequence[float]) -> None:
        """Record whether the loop has settled, judged by the times per step of its warm-up."""
        plan, asked = self._plan, self._plan.warmup is not None
        self._recorder.update(
            settled=None if asked else steady.is_settled(times),
            settled_by=_why_fixed(plan) if asked else steady.METHOD,
        )

    def _fit(self, times: Sequence[float]) -> None:
        """Take fewer steps in clean windows where steps take long, and say so."""
        if not times:
            return
        step_s = statistics.median(times[-steady.BLOCKS :]) / 1e9
        before, self._plan = self._plan, self._plan.fitted(step_s)
        if self._plan.steps < before.steps:
            self._recorder.update(planned=self._plan.outline)
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

    def _warmup_block(self, window: Window, first: int, total: int | None) -> Generator[None, Consumed, list[StepRow]]:
        """Take whole periods until the block's time has passed: at least one, and `total` warm-up steps at most."""
        plan, rows = self._plan, list[StepRow]()
        self._synchronize()
        begun = self._clock()
        while not rows or (
            self.steps - first != total
            and (
                len(rows) % plan.period
                or (len(rows) < plan.warmup_block_steps and self._clock() - begun < plan.warmup_block_s * 1e9)
            )
        ):
            rows.append((yield from self._take_step("warm-up", first, total)))
        self._end_block(window, rows)
        return rows

    def _clean(self) -> Course:
        plan, begun, first = self._plan, self._clock(), self.steps
        with self._recorder.window(CLEAN) as window, self._instruments.on(window, self._recorder):
            while self.steps - first < plan.steps or self._clock() - begun < plan.clean_s * 1e9:
                self._synchronize()
                self._instruments.begin_block(CLEAN)
                rows = list[StepRow]()
                while len(rows) < plan.block_steps:
                    rows.append((yield from self._take_step(CLEAN, first, plan.steps)))
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
        first, rows, whole = self.steps, list[StepRow](), True
        with self._recorder.window(name) as window:
            try:
                with self._instruments.on(window, self._recorder):
                    while self.steps - first < steps:
                        row = yield from self._take_step(name, first, steps)
                        ends_block = (self.steps - first) % block_steps == 0
                        if name == MEMORY:
                            self._let_pause()  # owners are read while no thread changes them
                        if ends_block:
                            self._synchronize()
                        self._hook.mark_step()
                        rows.append(row._replace(end_ns=self._clock()))
                        self._block += ends_block
            except Exception as error:
                whole = self.failure is not None or by_signal(error)
                raise
            finally:
                self._block += bool(rows) and rows[-1].block == self._block
                with nullcontext() if whole else suppress(Exception):  # the first error is the one to report
                    drained = self._take_off()
                if whole:
                    self._keep(window, rows, drained, is_complete=self.steps - first == steps)

    def _catch_up(self) -> Course:
        """Let a step pass that no window counts: in it this process waits for those whose window took longer to end."""
        yield from self._take_step("catch up", self.steps, NO_STEPS)

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
        self._count_given(rows, drained)
        is_whole = is_complete and len(drained.tables) > 0
        if is_whole and self._early and window.name in EARLY:
            self._recorder.recording.missing.pop(ReasonFor(window.name), None)  # why the early one lacked it
        self._recorder.recording.missing.update({key: visible(reason) for key, reason in missing.items()})
        tables = self._step_tables(rows)
        steps = tables["step"]
        known = min(len(steps), len(drained.marks))  # 0 if another profiler took the window's events
        steps["last_sequence"][:known] = drained.marks[:known]
        self._recorder.append(
            window, {**tables, **drained.tables}, instead_of=self._replaced(window) if is_whole else []
        )

    def _replaced(self, later: Window) -> list[Window]:
        return [window for window in self._early if window.name == later.name != WARMUP and window.tables]

    def _count_given(self, rows: Sequence[StepRow], drained: Drained) -> None:
        """Count what the models were given in each step, unless the loop counts it itself."""
        run, text = self._recorder.recording.run, self._recorder.recording.strings.add
        if run.batch_size is not None and not run.batch_size_from:
            return
        seen = {"samples_seen_from": drained.given_from, "samples_unknown": drained.given_unknown}
        self._recorder.update(**{name: text for name, text in seen.items() if text})
        known = {run.unit, *(self._recorder.recording.strings[row.name] for row in self._counts)}
        for row, counts in zip(rows, drained.given, strict=False):
            named = {run.sample_unit if unit == SAMPLES else unit: value for unit, value in counts.items()}
            self._counts += (
                StepCountRow(row.index, int(StepCountKind.UNITS), text(unit), value)
                for unit, value in named.items()
                if unit not in known
            )

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

    def _take_step(self, phase: str, first: int, total: int | None) -> Generator[None, Consumed, StepRow]:
        self._progress(phase, self.steps - first, total)
        begun = self._clock()
        try:
            consumed = yield
        except GeneratorExit:
            self._ended = True
            raise
        ended = self._clock()
        text = self._recorder.recording.strings.add
        self._counts += (
            StepCountRow(self.steps, int(kind), text(name), value) for kind, name, value in consumed.counts()
        )
        self.steps += 1
        return StepRow(self.steps - 1, self._block, begun, ended, consumed.units, -1)

    def _end_block(self, window: Window, rows: list[StepRow]) -> None:
        """Wait for the device to finish the block, and set the end of its last step to that time."""
        self._synchronize()
        tables = self._step_tables(rows)
        tables["step"]["end_ns"][-1] = self._clock()
        self._instruments.end_block(window.name)
        self._block += 1
        self._recorder.append(window, tables, instead_of=self._replaced(window), may_wait=True)

    def _step_tables(self, rows: Sequence[StepRow]) -> Tables:
        """Return steps with their counts; the counts of dropped steps are dropped, too."""
        kept = {row.index for row in rows}
        counts = [row for row in self._counts if row.step in kept]
        self._counts.clear()
        steps = {"step": table("step", rows)}
        return steps | ({"step_count": table("step_count", counts)} if counts else {})


def record_facts(hook: FrameworkHook, recorder: Recorder) -> None:
    """Record the framework's facts about the run so far."""
    facts = hook.facts()
    recorder.update(
        framework_version=facts.framework_version,
        device=facts.device,
        devices=list(facts.devices),
        device_name=facts.device_name,
        threads=facts.threads,
        parameters=tuple(facts.parameters),
        optimizers=tuple(facts.optimizers),
        precision_flags=dict(facts.precision_flags),
        runs_ahead=facts.runs_ahead,
        whole_parameters=facts.whole_parameters,
        **_batch_size(facts, recorder.recording.run),
        independent_total=hook.independent_total,
        watched_since=hook.watched_since,
    )


def _batch_size(facts: Facts, run: Run) -> dict[str, object]:
    """Return the batch size that the framework was seen to use, unless the user said one."""
    if facts.batch_size is None or (run.batch_size is not None and not run.batch_size_from):
        return {}
    return {"batch_size": facts.batch_size, "batch_size_from": facts.batch_size_from}


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
