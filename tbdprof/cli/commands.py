"""The work of `tbdprof run`, from the words on the command line."""

import shlex
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tbdprof.analysis.summary import summarize
from tbdprof.cli import words
from tbdprof.cli.progress import LiveProgress, PlainProgress
from tbdprof.cli.streams import emit, fail, say_interrupted, tell, wants_tracebacks
from tbdprof.cli.words import chosen_framework, refuse_for_models, refuse_unheeded, said_of_script
from tbdprof.errors import RecordingFormatError, TbdprofError, UsageError
from tbdprof.facts.file.places import mark
from tbdprof.facts.keys import RemarkOn
from tbdprof.facts.recording import Recording
from tbdprof.hooks.ranks import launched_rank
from tbdprof.launch.order import Said
from tbdprof.launch.request import RunRequest
from tbdprof.loop import ending
from tbdprof.loop.defect import defect_line
from tbdprof.loop.plan import Schedule, silent
from tbdprof.report import json_report, terminal

if TYPE_CHECKING:
    from tbdprof.cli.pages import Page
    from tbdprof.launch.script import Outcome
    from tbdprof.results.summary import Summary

    Paged = Callable[..., Page]  # `pages.planned`: the page of a recording, refused before the run if none can be made

MOST_NAMED = 8  # files in one line


@dataclass(frozen=True, slots=True, kw_only=True)
class Typed(words.Typed):
    """What was typed after `tbdprof run`."""

    script: Sequence[str] | None  # what stands after --
    batch_size: int | None
    samples_per_step: int | None
    unit: str | None
    power_period: int
    exact: bool
    output: Path | None
    force: bool
    require_recording: bool
    html: bool
    live: bool


def run_typed(typed: Typed, paged: "Paged | None") -> int:
    """Run what was typed, and return the exit code."""
    said = said_of_script(typed.samples_per_step, typed.unit, typed.precision)
    if typed.script is not None:
        refuse_unheeded(typed.words)
        return run_script(
            typed.script,
            typed.framework,
            typed.schedule,
            said,
            typed.output,
            force=typed.force,
            as_json=typed.as_json,
            require_recording=typed.require_recording,
            live=typed.live,
            paged=paged,
        )
    refuse_for_models(require_recording=typed.require_recording, said=said)
    request = replace(
        typed.request(),
        batch_size=typed.batch_size,
        output=typed.output,
        force=typed.force,
        power_period_ms=typed.power_period,
    )
    return run_model(request, exact=typed.exact, as_json=typed.as_json, quiet=typed.quiet, live=typed.live, paged=paged)


def run_model(
    request: RunRequest, *, exact: bool, as_json: bool, quiet: bool, live: bool, paged: "Paged | None" = None
) -> int:
    """Run a model of the suite, print its report, and return the exit code; `live` shows the run meanwhile."""
    from tbdprof.launch import counted_step, suite_run

    if exact:
        counted_step.refuse(request.device)
    path = request.path()
    page = None if paged is None else paged(path, force=request.force)
    older = mark(path)
    try:
        with (
            ending.raised(),
            _shown(path, live=live),
            nullcontext(silent) if quiet else _progress(live=live) as progress,
        ):
            recording = suite_run.run(request, path, progress)
            if exact:
                recording = counted_step.add(recording, request, path, progress)
    except (KeyboardInterrupt, OSError) as error:
        # After SIGHUP there may be no terminal any more, and the progress cannot be cleared there.
        interrupt = error if isinstance(error, KeyboardInterrupt) else error.__context__
        if not isinstance(interrupt, KeyboardInterrupt):
            raise
        kept = f"what was recorded is in {path}" if mark(path) not in (None, older) else "nothing was recorded yet"
        return say_interrupted(interrupt, kept)
    return _finish(recording, path, as_json=as_json, page=page)


def train_check(
    model: str,
    framework: str | None,
    steps: int | None,
    device: str,
    seed: int,
    threads: int | None,
    *,
    as_json: bool,
    quiet: bool,
) -> int:
    """Train a model on small generated data, print what it learned, and return 0 if it passes."""
    from tbdprof.launch import train_check as checks
    from tbdprof.report import learning

    chosen = chosen_framework(model, framework)
    request = RunRequest(model, chosen, device, threads=threads, schedule=Schedule(steps=steps), seed=seed)
    try:
        with nullcontext(silent) if quiet else _progress(live=False) as progress:
            checked = checks.run(request, progress)
    except KeyboardInterrupt as error:
        return say_interrupted(error, "nothing is kept of a check")
    emit(learning.as_json(checked) if as_json else learning.as_text(checked))
    return 0 if checked.learned.passed else 1


def run_script(
    script: Sequence[str],
    framework: str | None,
    schedule: Schedule,
    said: Said,
    output: Path | None,
    *,
    force: bool,
    as_json: bool,
    require_recording: bool,
    live: bool,
    paged: "Paged | None" = None,
) -> int:
    """Run a script unchanged, print its report, and return its exit code, whatever the report meets.

    With `require_recording`, 1 takes the place of 0 if nothing was recorded.
    """
    from tbdprof.launch import script as scripts

    if not script:
        raise UsageError("nothing after --: give the command to profile, as in: tbdprof run -- python train.py")
    path, rank = output or scripts.default_path(script), launched_rank()
    page = None if paged is None else paged(path, force=force)
    with _shown(path, live=live and (rank is None or not rank.number)):  # one view on one terminal
        outcome = scripts.run(
            script, path, framework=framework, schedule=schedule, said=said, force=force, quiet_stdout=as_json
        )
    if not outcome.paths:
        return fail(scripts.not_recorded(path, outcome), outcome.code or int(require_recording))
    if rank is not None and rank.number:
        tell(f"{rank} is recorded in {_listed(outcome.paths)}")  # the first rank's report is enough on one terminal
        return outcome.code
    try:
        _finish_script(outcome, as_json=as_json, page=page)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the script's code is passed on whatever fails
        if wants_tracebacks():
            traceback.print_exc()
        why = str(error) if isinstance(error, TbdprofError | OSError) else defect_line("to report", error)
        tell(f"recorded in {_listed(outcome.paths)}, but the report failed: {why}")
    return outcome.code


def _finish_script(outcome: "Outcome", *, as_json: bool, page: "Page | None") -> None:
    """Print the report of a script; of several ranks the comparison, of those whose files can be read."""
    from tbdprof.cli import several
    from tbdprof.launch import script as scripts

    if len(outcome.paths) == 1:
        _finish(scripts.recorded(outcome.paths[0], outcome), outcome.paths[0], as_json=as_json, page=page)
        return
    if page is not None:
        tell("no page is made of several ranks: tbdprof report FILE --html makes that of one")
    read: dict[Path, Summary] = {}
    for path in outcome.paths:
        try:
            read[path] = summarize(scripts.recorded(path, outcome))
        except RecordingFormatError as error:
            tell(str(error))
    emit(several.report(read, color=sys.stdout.isatty(), as_json=as_json))
    tell(f"recorded in {_listed(outcome.paths)}; of one rank: tbdprof report {shlex.quote(str(outcome.paths[0]))}")


def _listed(paths: Sequence[Path]) -> str:
    """Name files, the first and the last of many."""
    names = [str(path) for path in paths]
    return ", ".join(names if len(names) <= MOST_NAMED else [*names[: MOST_NAMED - 1], "…", names[-1]])


def _finish(recording: Recording, path: Path, *, as_json: bool, page: "Page | None" = None) -> int:
    summary = summarize(recording)
    emit(json_report.render(summary) if as_json else terminal.render(summary, color=sys.stdout.isatty()))
    failed = recording.missing.get(RemarkOn.FILE)
    tell(failed or f"recorded in {path}")
    if page is not None:
        page.write(summary)
    return 1 if failed else 0


def _progress(*, live: bool) -> LiveProgress | PlainProgress:
    if live:
        return PlainProgress(only_without_steps=True)  # the view has the steps
    return LiveProgress() if sys.stderr.isatty() else PlainProgress()


def _shown(path: Path, *, live: bool) -> AbstractContextManager[None]:
    if not live:
        return nullcontext()
    from tbdprof.cli.live.starting import shown

    return shown(path)
