"""A loop of a model of the suite, recorded as `tbdprof run` records it, whose windows are timed one after another."""

import random
from contextlib import ExitStack
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from types import TracebackType

from cost.figures import SETTINGS, Stretch
from cost.sizes import Size
from cost.stretches import timed
from tbdprof import suite
from tbdprof.cli.progress import PlainProgress
from tbdprof.facts.keys import ReasonFor
from tbdprof.facts.recording import Window
from tbdprof.launch.choose_instruments import instruments_for
from tbdprof.launch.prepared import prepared
from tbdprof.loop.new_run import listed, new_run
from tbdprof.loop.plan import Plan
from tbdprof.loop.profiler import LoopProfiler

_EDGES = 2  # steps of a window that are not timed: the first settles, the last one closes; or more, to end a block


@dataclass(frozen=True, slots=True)
class _Blocks(Plan):
    """Clean blocks of a given length, however long the window is."""

    clean_block_steps: int = 1

    @property
    def block_steps(self) -> int:
        """Return the steps of a clean block."""
        return self.clean_block_steps


class Course:
    """A loop under the profiler; a context manager."""

    def __init__(self, framework: str, size: Size, threads: int, windows: tuple[str, ...], folder: Path) -> None:
        request = size.request(framework, threads)
        plan = _Blocks(
            warmup=3,
            steps=size.steps + _EDGES,
            memory_steps=size.watched_steps + _EDGES,
            kernel_steps=size.watched_steps + _EDGES,
            windows=windows,
            clean_block_steps=size.block_steps,
        )
        self._size = size
        self._ends = ExitStack()
        self._shuffler = random.Random(0)
        hook = self._ends.enter_context(prepared(framework, request.setting()))
        self._synchronize = import_module(f"cost.on_{framework}").synchronize  # imports what the hook has prepared
        config = request.config("cpu")
        facts = new_run(size.model, framework, unit=suite.find(size.model).unit, batch_size=config.batch_size)
        instruments = replace(instruments_for("cpu", framework), windows=windows)
        progress = self._ends.enter_context(PlainProgress())
        self._profiler = LoopProfiler(
            hook, facts, plan, path=folder / "run.tbd", progress=progress, instruments=instruments
        )
        self._workload = suite.build(size.model, framework, config)
        hook.watch(listed(self._workload.model), listed(self._workload.optimizer), listed(self._workload.inputs))

    def __enter__(self) -> "Course":
        """Warm up."""
        # The peaks of the processor are measured before a loop begins, and cost nothing later.
        self._profiler.recording.missing[ReasonFor.PEAKS] = "not needed"
        self._ends.enter_context(self._profiler)
        for _ in range(3):
            self._step()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the loop."""
        self._ends.close()

    def stretches(self, window: str) -> dict[str, Stretch]:
        """Return the timed steps of the next window, which is this one; a clean one also gives `SETTINGS`."""
        here = self._profiler.recording.windows[-1]
        if here.name != window:
            raise ValueError(f"the window is {here.name}, not {window}")
        found: dict[str, Stretch] = {}
        unreported = window == "clean" and self._shuffler.random() < 0.5
        self._step()
        if unreported:
            found[SETTINGS] = self._unreported()
        steps = self._size.steps if window == "clean" else self._size.watched_steps
        found[window] = timed(self._step, steps, self._synchronize)
        if window == "clean" and not unreported:
            found[SETTINGS] = self._unreported()
        while self._profiler.active and self._profiler.recording.windows[-1] is here:
            self._step()
        if events := _events(here):
            found[window] = replace(found[window], events=events / len(here.table("step")))
        here.tables.clear()  # they are in the file
        return found

    def _unreported(self) -> Stretch:
        """Return the times of steps that nothing watches and that are not reported, in this process."""
        return timed(self._workload.step, self._size.steps, self._synchronize)

    def _step(self) -> None:
        self._profiler.step(self._workload.step())


def _events(window: Window) -> int:
    return sum(len(window.table(kind)) for kind in ("allocation", "span"))
