"""The work of `tbdprof advise`: run the plain model, then what the verdict points at, and report what each brought."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tbdprof import suite
from tbdprof.analysis.advice.choosing import choices
from tbdprof.analysis.advice.judging import Measured, advised
from tbdprof.analysis.summary import summarize
from tbdprof.cli import words
from tbdprof.cli.progress import of_sweep
from tbdprof.cli.streams import emit, say_interrupted, tell
from tbdprof.errors import RecordingFormatError, TbdprofError
from tbdprof.facts.file.reading import load
from tbdprof.launch.request import RunRequest
from tbdprof.report.advice import as_json, text
from tbdprof.results.advice import Advised, Choice, Losses
from tbdprof.results.summary import Summary
from tbdprof.results.sweep import End
from tbdprof.suite import switches
from tbdprof.sweep import folder as folders
from tbdprof.sweep.folder import Folder
from tbdprof.sweep.plan import AGAIN, Plan, check
from tbdprof.sweep.running import outcomes, run, seconds

LOSS_STEPS = 10
PRECISIONS = {"cpu": ("bf16",), "cuda": ("tf32", "bf16")}  # to try, by the kind of device
IN_BF16 = ("torch", "tensorflow")


@dataclass(frozen=True, slots=True, kw_only=True)
class Typed(words.Typed):
    """What was typed after `tbdprof advise`."""

    batch_size: int | None
    tries_all: bool
    output: Path | None


def run_typed(typed: Typed) -> int:
    """Try what was typed, print the report, and return the exit code; a trial that failed is a result."""
    request = replace(typed.request(), batch_size=typed.batch_size)
    path = typed.output or Path(f"advice-{request.model}-{request.framework}")
    plan = Plan(request, {}, chosen=({},), loss_steps=LOSS_STEPS)
    check(plan)
    with folders.locked(path):
        folder = folders.opened(path, plan)
        try:
            _run(folder, quiet=typed.quiet)
            summary, losses = _plain(folder)
            chosen = choices(summary.verdict, available(request, summary), tries_all=typed.tries_all)
            settings = [each.settings for each in chosen]
            folder = folders.opened(path, replace(plan, chosen=({}, *settings, {AGAIN: 1})))
            _run(folder, quiet=typed.quiet)
        except KeyboardInterrupt as error:
            return say_interrupted(error, f"{len(outcomes(folder))} runs have ended; the same command goes on")
    found = _advised(folder, summary, losses, chosen)
    emit(as_json.render(found) if typed.as_json else text.render(found, color=sys.stdout.isatty()))
    tell(f"the recordings are in {folder.points}")
    return 0


def available(request: RunRequest, plain: Summary) -> dict[str, tuple[str | int, ...]]:
    """Return the values that can be tried of each setting, without the plain run's own."""
    spec, run = suite.find(request.model), plain.recording.run
    found: dict[str, tuple[str | int, ...]] = {}
    for switch in switches.of_model(spec, request.framework):
        now = request.options.get(switch.name, switch.default)
        found[switch.name] = tuple(value for value in switch.choices if value != now)
    if request.framework in IN_BF16 and request.precision == "fp32":
        found["precision"] = PRECISIONS.get(run.device.partition(":")[0], ())
    if run.device == "cpu" and run.threads and run.threads > 1:
        found["threads"] = (run.threads // 2,)
    if run.batch_size is not None:
        found["batch_size"] = (2 * run.batch_size,)
    return found


def _run(folder: Folder, *, quiet: bool) -> None:
    """Run what has not ended of the plan."""
    with of_sweep(seconds(folder), quiet=quiet) as watcher:
        run(folder, watcher)


def _plain(folder: Folder) -> tuple[Summary, Losses]:
    """Return the plain run; raise TbdprofError if it did not finish: then nothing can be compared."""
    found = _measured(folder, Choice({}))
    if found.summary is None:
        raise TbdprofError(f"the plain run did not finish, so there is nothing to compare with: {found.reason}")
    return found.summary, found.losses


def _advised(folder: Folder, plain: Summary, losses: Losses, chosen: Sequence[Choice]) -> Advised:
    return advised(plain, losses, [_measured(folder, each) for each in chosen], _measured(folder, Choice({AGAIN: 1})))


def _measured(folder: Folder, choice: Choice) -> Measured:
    """Return what is known of a point that has ended."""
    point = folder.plan.point(choice.settings)
    outcome = folder.outcome(point)
    if outcome is None:
        return Measured(choice, End.FAILED, "it has not ended", None, Losses())
    losses = Losses(outcome.losses, outcome.no_losses)
    if outcome.end is not End.FINISHED:
        return Measured(choice, outcome.end, outcome.reason, None, losses, outcome.seconds)
    try:
        summary = summarize(load(folder.recording(point)))
    except RecordingFormatError as error:
        return Measured(choice, End.FAILED, str(error), None, losses, outcome.seconds)
    return Measured(choice, End.FINISHED, None, summary, losses, outcome.seconds)
