"""The progress of a run, on stderr: a live line on a terminal, otherwise a plain line per phase."""

import sys
import time
from contextlib import AbstractContextManager, nullcontext

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from tbdprof.cli.streams import tell
from tbdprof.facts.units import seconds_text
from tbdprof.loop.plan import NO_STEPS
from tbdprof.sweep.outcome import Outcome
from tbdprof.sweep.plan import Point

PLAIN_EVERY_S = 10.0


class LiveProgress:
    """Phase, step and rate of a run, redrawn in place; a context manager."""

    def __init__(self) -> None:
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[count]}", markup=False),
            TextColumn("{task.fields[rate]}", markup=False),
            TimeElapsedColumn(),
        )
        self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._progress.add_task("prepare", total=None, count="", rate="")
        self._phase = "prepare"
        self._rate = _Rate()

    def __enter__(self) -> "LiveProgress":
        """Begin to draw."""
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Clear what was drawn."""
        self._progress.stop()

    def __call__(self, phase: str, step: int, of: int | None) -> None:
        """Show how far the phase is."""
        total = of or None  # a bar with a total of 0 would be full
        if phase != self._phase:
            self._progress.reset(self._task, total=total, description=phase)
            self._phase = phase
        count = "" if of == NO_STEPS else f"{step}/{'?' if of is None else of}"
        rate = self._rate.text(phase, step)
        self._progress.update(self._task, completed=step, total=total, count=count, rate=rate)


class PlainProgress:
    """Prints a line when a phase begins, and one now and then while it lasts; a context manager."""

    def __init__(self, *, only_without_steps: bool = False) -> None:
        """Prepare to print; `only_without_steps`: the phases before and after the training alone."""
        self._only_without_steps = only_without_steps
        self._rate = _Rate()
        self._phase = ""
        self._said = 0.0

    def __enter__(self) -> "PlainProgress":
        """Say nothing yet."""
        return self

    def __exit__(self, *error: object) -> None:
        """Say nothing more."""

    def __call__(self, phase: str, step: int, of: int | None) -> None:
        """Print how far the phase is, if it is new or the last line is some time ago."""
        if self._only_without_steps and of != NO_STEPS:
            return
        rate, now = self._rate.text(phase, step), time.monotonic()
        if phase == self._phase and now - self._said < PLAIN_EVERY_S:
            return
        self._phase, self._said = phase, now
        total = "" if of is None else f" of {of}"
        count = "" if of == NO_STEPS else f": step {step}{total} {rate}".rstrip()
        tell(f"{phase}{count}")


class _Rate:
    """Steps per second since the phase began."""

    def __init__(self) -> None:
        self._phase = ""
        self._begun = 0.0
        self._first = 0

    def text(self, phase: str, step: int) -> str:
        """Return the rate as text, empty if there is none yet."""
        now = time.monotonic()
        if phase != self._phase or step < self._first:
            self._phase, self._begun, self._first = phase, now, step
        if step == self._first or now == self._begun:
            return ""
        return f"{(step - self._first) / (now - self._begun):.2f} steps/s"


def of_sweep(seconds: list[float], *, quiet: bool) -> "AbstractContextManager[SilentSweep | SweepProgress]":
    """Return what shows how far a sweep is; `seconds` are those that its points took before."""
    return nullcontext(SilentSweep()) if quiet else SweepProgress(seconds)


class SilentSweep:
    """Tells nothing."""

    def begins(self, point: Point, ended: int, total: int | None, at_once: int = 1) -> None:
        """Tell nothing."""

    def lost(self, point: Point) -> None:
        """Tell nothing."""

    def ends(self, point: Point, outcome: Outcome) -> None:
        """Tell nothing."""


class SweepProgress:
    """A line for each point that ended, and on a terminal how far the sweep is; a context manager."""

    def __init__(self, seconds: list[float]) -> None:
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}", markup=False),
        )
        self._progress = Progress(
            *columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()
        )
        self._task = self._progress.add_task("", total=None, left="")
        self._seconds = seconds  # that points took before

    def __enter__(self) -> "SweepProgress":
        """Begin to draw."""
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Clear what was drawn."""
        self._progress.stop()

    def begins(self, point: Point, ended: int, total: int | None, at_once: int = 1) -> None:
        """Show which point runs, or how many run."""
        left = ""
        if total is not None and self._seconds:
            seconds = (total - ended) * sum(self._seconds) / len(self._seconds) / at_once
            left = f"about {seconds_text(seconds * 1e9)} left"
        name = point.name if at_once == 1 else f"{at_once} points"
        self._progress.update(self._task, description=name, completed=ended, total=total, left=left)

    def lost(self, point: Point) -> None:
        """Tell that a point runs again."""
        self._say(f"{point.name}: its machine was lost; it runs again")

    def ends(self, point: Point, outcome: Outcome) -> None:
        """Tell how a point ended."""
        if outcome.seconds:
            self._seconds.append(outcome.seconds)
        took = "" if outcome.seconds is None else f" after {seconds_text(outcome.seconds * 1e9)}"
        why = "" if outcome.reason is None else f": {outcome.reason}"
        self._say(f"{point.name}: {outcome.end.value}{took}{why}")

    def _say(self, line: str) -> None:
        if self._progress.disable:
            tell(line)
        else:
            self._progress.console.print(line, markup=False, highlight=False)
