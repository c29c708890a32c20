"""Profile a user's own training loop: find the framework, attach its hook, return a profiler."""

import sys
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tbdprof.analysis.summary import summarize
from tbdprof.errors import TbdprofError, UsageError, visible
from tbdprof.facts.consumed import STEPS
from tbdprof.facts.file.placing import Claim, claim, save
from tbdprof.facts.keys import ReasonFor
from tbdprof.facts.ranks import Rank, facts_of, path_of
from tbdprof.facts.recording import Recording
from tbdprof.facts.records import Run
from tbdprof.hooks import FRAMEWORKS, FrameworkHook, Setting, load
from tbdprof.hooks.ranks import own_rank
from tbdprof.launch.arguments import (
    file_path,
    known_precision,
    optional_number,
    optional_path,
    optional_text,
    text,
    trained,
    warmup_steps,
    whole_number,
    yes_or_no,
)
from tbdprof.launch.choose_instruments import instruments_for
from tbdprof.loop.defect import defect_line
from tbdprof.loop.instruments import Instruments
from tbdprof.loop.new_run import listed, new_run, script_name
from tbdprof.loop.plan import Plan, Schedule, plan_for, together
from tbdprof.loop.profiler import LoopProfiler
from tbdprof.report.metrics.flat import FlatSummary, flat
from tbdprof.report.terminal import render

EARLY_AFTER = 2  # steps
_prepared: dict[str, FrameworkHook] = {}
unattended: "weakref.WeakSet[Profiler]" = weakref.WeakSet()  # their loops do not report an end by an exception
_Extent = tuple[Run, list[tuple[str, dict[str, int]]], dict[str, str]]


class Profiler(LoopProfiler):
    """The profiler that `profile` returns: it records the loop it encloses, and reports on it. A context manager.

    It attaches to the framework when the loop begins, not before.
    """

    def __init__(
        self,
        hook: FrameworkHook,
        run: Run,
        joining: "Joining",
        claimed: Claim | None,
        *,
        per_step: int | None = None,
    ) -> None:
        super().__init__(hook, run, Plan(), path=None if claimed is None else claimed.path, per_step=per_step)
        self._joining = joining
        self._claimed = claimed
        self._worked_out: tuple[_Extent, FlatSummary] | None = None

    @property
    def summary(self) -> FlatSummary:
        """Return all results of the recording so far; they are computed again only after new records.

        Raise TbdprofError, in one line to report, if tbdprof itself fails.
        """
        extent = _extent(self.recording)
        if self._worked_out is None or self._worked_out[0] != extent:
            try:
                self._worked_out = extent, flat(summarize(self.recording))
            except Exception as error:
                raise TbdprofError(defect_line("to work out the results", error)) from error
        return self._worked_out[1]

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write the recording to a file; raise UsageError if it exists or cannot be written."""
        save(self.recording, file_path("path", path), force=yes_or_no("force", force))

    def __str__(self) -> str:
        """Return the report; if tbdprof fails, one line that says so, because a loop prints this."""
        try:
            return render(self.summary)
        except TbdprofError as error:
            return f"tbdprof: {error}"
        except Exception as error:  # noqa: BLE001 - as above
            return f"tbdprof: {defect_line('to print the report', error)}"

    def start(self) -> None:
        """Attach to the framework and start with the warm-up; stop profilers that other loops left running."""
        self._refuse_another_start()
        for left in list(unattended):
            left.stop()
        unattended.clear()
        super().start()

    def _begin(self) -> None:
        self._plan, self._instruments = self._joining(self._hook, self.recording.run.framework)
        super()._begin()

    def _leave(self) -> None:
        try:
            super()._leave()
        finally:
            if self._claimed is not None:
                self._claimed.release()


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
    is_together: bool = False

    def __call__(self, hook: FrameworkHook, framework: str) -> tuple[Plan, Instruments]:
        """Let the hook watch, and return the plan and the instruments for its device."""
        if not self.is_prepared:
            hook.attach()
        hook.watch(self.models, self.optimizers)
        device = hook.facts().device
        found = instruments_for(device, framework, is_together=self.is_together)
        plan = plan_for(device, self.schedule, windows=found.windows, early_after=EARLY_AFTER)
        return together(plan) if self.is_together else plan, found


def prepare(framework: str) -> None:
    """Watch a framework from its first allocation on; call it before the framework is imported.

    The next `profile` then knows everything that was allocated before it. A second call before that does nothing. Raise
    UsageError if there is no such framework, UnavailableError if it is not installed.
    """
    if text("framework", framework) in _prepared:
        return
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
    samples_per_step: int | None = None,
    batch_size: int | None = None,
    precision: str | None = None,
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
        warmup: steps before the first window; "auto" waits until the loop has settled. Without this and the next three,
            short windows come first, in case the loop ends soon.
        max_warmup: steps after which an "auto" warm-up gives up; by default about 22 on a CPU, 200 on a GPU.
        steps: steps of each clean window, by default 10 on a CPU, 50 (and 10 seconds) on a GPU.
        repeat: how many times the windows are recorded.
        unit: what `step` counts, in the plural.
        samples_per_step: the count of a `step()` without one, in `unit`; by default, what the loop's models are given.
        batch_size: samples per step, if `step` counts something else; by default detected.
        precision: what matrix products and convolutions are meant to compute in: fp32, tf32, fp64, bf16 or fp16. By
            default, it is detected.
        name: what the report calls the run; by default the model's class.
        output: a file to record into while the loop runs; `Profiler.save` writes one afterwards. Each of several
            processes that train together gets a file of its own: `run.rank1.tbd` for `run.tbd`.
        force: overwrite that file.
        enabled: False makes this a no-op.

    Raise UsageError for an argument of another type or out of its range, if the framework is ambiguous or unknown, and
    if the output exists. One profiler records at a time in a process: a second `with` raises UsageError meanwhile.
    """
    models = trained("models", listed(models))
    optimizers = trained("optimizers", listed(optimizers))
    enabled, force = yes_or_no("enabled", enabled), yes_or_no("force", force)
    schedule = Schedule(
        optional_number("steps", steps, 1),
        warmup_steps(warmup),
        optional_number("max_warmup", max_warmup, 1),
        whole_number("repeat", repeat, 1),
    )
    facts = {
        "unit": _unit(unit),
        "batch_size": optional_number("batch_size", batch_size, 1),
        "precision": known_precision(precision),
    }
    per_step = optional_number("samples_per_step", samples_per_step, 1)
    named, path = optional_text("name", name), optional_path("output", output)
    chosen = optional_text("framework", framework) or _framework_of([*models, *optimizers], required=enabled)
    hook = load(chosen)
    rank = own_rank(chosen)
    run = new_run(named or _name_of(models), chosen, script=script_name(), **facts, **facts_of(rank))
    if not enabled:
        return DisabledProfiler(hook, run, Joining([], [], False, Schedule()), None)
    claimed = None if path is None else claim(path if rank is None else _of_rank(path, rank), force=force)
    prepared = _prepared.pop(chosen, None)
    joining = Joining(models, optimizers, prepared is not None, schedule, rank is not None)
    return Profiler(prepared or hook, run, joining, claimed, per_step=per_step)


def _of_rank(path: Path, rank: Rank) -> Path:
    """Return a rank's own file, and say on stderr that it is not the one that was given."""
    own = path_of(path, rank.number)
    if own != path and sys.stderr is not None:
        sys.stderr.write(f"tbdprof: {rank} records into {visible(str(own))}\n")
    return own


def _unit(unit: object) -> str:
    if unit == STEPS:
        raise UsageError(f"unit is {STEPS!r}: leave it out, and call step() without a count")
    return text("unit", unit)


def _extent(recording: Recording) -> _Extent:
    """Return a value that changes whenever more is recorded."""
    windows = [
        (window.state, {kind: len(rows) for kind, rows in window.tables.items()}) for window in recording.windows
    ]
    return recording.run, windows, dict(recording.missing)


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
