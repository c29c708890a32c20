"""Profile a user's own training loop: find the framework, attach its hook, return a profiler."""

import sys
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tbdprof.analysis.summary import summarize
from tbdprof.errors import UsageError
from tbdprof.facts.file.placing import claim, save
from tbdprof.facts.keys import ReasonFor
from tbdprof.facts.recording import Recording
from tbdprof.facts.records import Run
from tbdprof.hooks import FRAMEWORKS, FrameworkHook, Setting, load
from tbdprof.launch.choose_instruments import instruments_for
from tbdprof.loop.instruments import Instruments
from tbdprof.loop.new_run import listed, new_run, script_name
from tbdprof.loop.plan import Plan, Schedule, plan_for
from tbdprof.loop.profiler import LoopProfiler
from tbdprof.report.terminal import render
from tbdprof.results.summary import Summary

_prepared: dict[str, FrameworkHook] = {}
unattended: "weakref.WeakSet[Profiler]" = weakref.WeakSet()  # their loops do not report an end by an exception
_Extent = tuple[Run, list[tuple[str, dict[str, int]]], dict[str, str]]


class Profiler(LoopProfiler):
    """The profiler that `profile` returns: it records the loop it encloses, and reports on it. A context manager.

    It attaches to the framework when the loop begins, not before.
    """

    def __init__(self, hook: FrameworkHook, run: Run, joining: "Joining", path: Path | None) -> None:
        super().__init__(hook, run, Plan(), path=path)
        self._joining = joining
        self._worked_out: tuple[_Extent, Summary] | None = None

    @property
    def summary(self) -> Summary:
        """Return all results of the recording so far; they are computed again only after new records."""
        extent = _extent(self.recording)
        if self._worked_out is None or self._worked_out[0] != extent:
            self._worked_out = extent, summarize(self.recording)
        return self._worked_out[1]

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write the recording to a file; raise UsageError if it exists or cannot be written."""
        save(self.recording, Path(path), force=force)

    def __str__(self) -> str:
        """Return the report."""
        return render(self.summary)

    def start(self) -> None:
        """Attach to the framework and start with the warm-up; stop profilers that other loops left running."""
        for left in list(unattended):
            left.stop()
        unattended.clear()
        try:
            self._plan, self._instruments = self._joining(self._hook, self.recording.run.framework)
            super().start()
        except BaseException:
            self._hook.close()
            raise


class DisabledProfiler(Profiler):
    """A profiler that records nothing; `step` returns at once."""

    def start(self) -> None:
        """Record why there are no results."""
        self._recorder.update(ended_by="profiling was disabled")
        for result in (ReasonFor.MEMORY, ReasonFor.THROUGHPUT):
            self.recording.missing[result] = "profiling was disabled"


@dataclass(frozen=True, slots=True)
class Joining:
    """What to watch, and for how long."""

    models: list[object]
    optimizers: list[object]
    is_prepared: bool
    schedule: Schedule

    def __call__(self, hook: FrameworkHook, framework: str) -> tuple[Plan, Instruments]:
        """Let the hook watch, and return the plan and the instruments for its device."""
        if not self.is_prepared:
            hook.attach()
        hook.watch(self.models, self.optimizers)
        device = hook.facts().device
        found = instruments_for(device, framework)
        return plan_for(device, self.schedule, windows=found.windows), found


def prepare(framework: str) -> None:
    """Watch a framework from its first allocation on; call it before the framework is imported.

    The next `profile` then knows everything that was allocated before it. Raise UnavailableError if the framework is
    not installed.
    """
    hook = load(framework)
    hook.prepare(Setting())
    _prepared[framework] = hook


def profile(
    models: object | Sequence[object] = (),
    optimizers: object | Sequence[object] = (),
    *,
    framework: str | None = None,
    warmup: int | Literal["auto"] = "auto",
    max_warmup: int | None = None,
    steps: int | None = None,
    repeat: int = 1,
    unit: str = "samples",
    batch_size: int | None = None,
    name: str | None = None,
    output: str | Path | None = None,
    force: bool = False,
    enabled: bool = True,
) -> Profiler:
    """Return a profiler for the loop it encloses.

        with tbdprof.profile(model, optimizer) as prof:
            for images, labels in batches:
                train(images, labels)
                prof.step(len(images))
        print(prof)  # the report

    Args:
        models: a torch module, Gluon block, MXNet module, Keras model or TensorFlow module, or a list of them. Without
            any, root modules are found as they are used. A compiled Keras model brings its optimizer, as an MXNet
            module does.
        optimizers: a torch or Keras optimizer or Gluon trainer, a list of them, or nothing.
        framework: needed only if neither the models nor the imported modules show it.
        warmup: steps before the first window; "auto" waits until the loop has settled.
        max_warmup: steps after which an "auto" warm-up gives up; by default about 22 on a CPU, 200 on a GPU.
        steps: steps of each clean window, by default 10 on a CPU, 50 (and 10 seconds) on a GPU.
        repeat: how many times the windows are recorded.
        unit: what `step` counts, in the plural.
        batch_size: samples per step, if `step` counts something else.
        name: what the report calls the run; by default the model's class.
        output: a file to record into while the loop runs; `Profiler.save` writes one afterwards.
        force: overwrite that file.
        enabled: False makes this a no-op.

    Raise UsageError if the framework is ambiguous or unknown, or if the output exists.
    """
    models, optimizers = listed(models), listed(optimizers)
    _check_schedule(warmup, max_warmup, steps, repeat)
    chosen = framework or _framework_of([*models, *optimizers], required=enabled)
    run = new_run(name or _name_of(models), chosen, unit=unit, batch_size=batch_size, script=script_name())
    if not enabled:
        return DisabledProfiler(load(chosen), run, Joining([], [], False, Schedule()), None)
    path = None if output is None else Path(output)
    if path is not None:
        claim(path, force=force)
    waits = None if warmup == "auto" else int(warmup)
    prepared = _prepared.pop(chosen, None)
    joining = Joining(models, optimizers, prepared is not None, Schedule(steps, waits, max_warmup, repeat))
    return Profiler(prepared or load(chosen), run, joining, path)


def _extent(recording: Recording) -> _Extent:
    """Return a value that changes whenever more is recorded."""
    windows = [
        (window.state, {kind: len(rows) for kind, rows in window.tables.items()}) for window in recording.windows
    ]
    return recording.run, windows, dict(recording.missing)


def _check_schedule(warmup: int | str, max_warmup: int | None, steps: int | None, repeat: int) -> None:
    if warmup != "auto" and not (isinstance(warmup, int) and warmup >= 0):
        raise UsageError(f'warmup is {warmup!r}: give "auto" or a number of steps, 0 or more')
    for name, value in (("max_warmup", max_warmup), ("steps", steps), ("repeat", repeat)):
        if value is not None and value < 1:
            raise UsageError(f"{name} is {value}: give a number of 1 or more")


def _framework_of(things: Sequence[object], *, required: bool) -> str:
    """Return the framework of the things' classes, otherwise the one that is imported."""
    roots = {base.__module__.partition(".")[0] for thing in things for base in type(thing).__mro__}
    found = [name for name in FRAMEWORKS if name in roots] or [name for name in FRAMEWORKS if name in sys.modules]
    if len(found) == 1 or (found and not required):
        return found[0]
    if not required:
        return FRAMEWORKS[0]
    seen = f"{' and '.join(found)} are both there" if found else "no model, no optimizer, and no framework imported"
    raise UsageError(f"the framework to profile is not known ({seen}): pass framework={' or '.join(FRAMEWORKS)}")


def _name_of(models: Sequence[object]) -> str:
    return " + ".join(type(model).__name__ for model in models) or script_name() or "own loop"
