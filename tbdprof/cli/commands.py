"""The work of `tbdprof run`, from the words on the command line."""

import shlex
import sys
import traceback
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from tbdprof.analysis.summary import summarize
from tbdprof.cli.progress import LiveProgress, PlainProgress
from tbdprof.cli.streams import emit, fail, tell, wants_tracebacks
from tbdprof.errors import RecordingFormatError, TbdprofError, UsageError
from tbdprof.facts.consumed import STEPS
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
from tbdprof.suite.workload import SWITCH

if TYPE_CHECKING:
    from tbdprof.launch.script import Outcome
    from tbdprof.results.summary import Summary
    from tbdprof.suite.workload import Spec

MOST_NAMED = 8  # files in one line
SCRIPT_OPTIONS = {
    *("framework", "steps", "warmup", "max_warmup", "repeat", "output", "force"),
    *("samples_per_step", "unit", "precision"),
    *("words", "as_json", "quiet", "verbose", "require_recording"),
}


def model_and_options(words: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Return the model that was typed, and its own options; raise UsageError if there is no such model."""
    from tbdprof import suite

    _refuse_script(words)
    model, options = _split(words, suite.switches())
    if model is None:
        raise UsageError(f"no model given: choose one of {', '.join(suite.names())}, or a script after --")
    suite.find(model)
    return model, options


def chosen_framework(model: str, framework: str | None) -> str:
    """Return the framework that was typed; raise UsageError if none was."""
    from tbdprof import suite

    carried = suite.frameworks(model)
    if framework is None:
        raise UsageError(f"no framework given: add --framework {' or '.join(carried)}")
    return framework


def folder_of(data: str) -> Path | None:
    """Return the folder of data that was typed, or None for synthetic data; raise UsageError if it is empty."""
    from tbdprof.suite.data.datasets import SYNTHETIC

    if not data:  # a Path of "" would mean the current folder
        raise UsageError(f"--data is empty: give the folder of the data set, or {SYNTHETIC}")
    return None if data == SYNTHETIC else Path(data)


def run_model(request: RunRequest, *, exact: bool, as_json: bool, quiet: bool) -> int:
    """Run a model of the suite, print its report, and return the exit code."""
    from tbdprof import suite
    from tbdprof.launch import counted_step, suite_run

    _check_options(suite.find(request.model), request.options)
    if exact:
        counted_step.refuse(request.device)
    path = request.path()
    older = mark(path)
    try:
        with ending.raised(), nullcontext(silent) if quiet else _progress() as progress:
            recording = suite_run.run(request, path, progress)
            if exact:
                recording = counted_step.add(recording, request, path, progress)
    except (KeyboardInterrupt, OSError) as error:
        # After SIGHUP there may be no terminal any more, and the progress cannot be cleared there.
        interrupt = error if isinstance(error, KeyboardInterrupt) else error.__context__
        if not isinstance(interrupt, KeyboardInterrupt):
            raise
        kept = f"what was recorded is in {path}" if mark(path) not in (None, older) else "nothing was recorded yet"
        return _say_interrupted(interrupt, kept)
    return _finish(recording, path, as_json=as_json)


def train_check(request: RunRequest, *, as_json: bool, quiet: bool) -> int:
    """Train a model on small generated data, print what it learned, and return 0 if it passes."""
    from tbdprof.launch import train_check as checks
    from tbdprof.report import learning

    try:
        with nullcontext(silent) if quiet else _progress() as progress:
            checked = checks.run(request, progress)
    except KeyboardInterrupt as error:
        return _say_interrupted(error, "nothing is kept of a check")
    emit(learning.as_json(checked) if as_json else learning.as_text(checked))
    return 0 if checked.learned.passed else 1


def refuse_for_models(*, require_recording: bool, said: Said) -> None:
    """Refuse what only a script would use."""
    if require_recording:
        raise UsageError("--require-recording is for scripts, whose exit code is passed on: put the script after --")
    for name, value in (("--samples-per-step", said.samples_per_step), ("--unit", said.unit)):
        if value is not None:
            raise UsageError(f"{name} is for scripts: put the script after --; a model has --batch-size")


def said_of_script(samples_per_step: int | None, unit: str | None, precision: str) -> Said:
    """Return what was typed of a script; a precision that was not typed is seen. Raise UsageError for an empty unit."""
    if unit is not None and (not unit.strip() or unit == STEPS):
        raise UsageError(f"--unit is {unit!r}: give what a step is counted in, in the plural: samples, tokens, images")
    typed = click.get_current_context().get_parameter_source("precision") is ParameterSource.COMMANDLINE
    return Said(samples_per_step, unit, precision if typed else None)


def refuse_unheeded(words: Sequence[str]) -> None:
    """Refuse words before `--` that only a model of the suite would use."""
    if words:
        raise UsageError(f"unexpected {words[0]!r} before --: give a model, or a script after --, not both")
    context = click.get_current_context()
    for name in context.params.keys() - SCRIPT_OPTIONS:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise UsageError(f"{_flag(name)} is for the models of the suite: give a script its own options after --")


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
) -> int:
    """Run a script unchanged, print its report, and return its exit code, whatever the report meets.

    With `require_recording`, 1 takes the place of 0 if nothing was recorded.
    """
    from tbdprof.launch import script as scripts

    if not script:
        raise UsageError("nothing after --: give the command to profile, as in: tbdprof run -- python train.py")
    path, rank = output or scripts.default_path(script), launched_rank()
    outcome = scripts.run(
        script, path, framework=framework, schedule=schedule, said=said, force=force, quiet_stdout=as_json
    )
    if not outcome.paths:
        return fail(scripts.not_recorded(path, outcome), outcome.code or int(require_recording))
    if rank is not None and rank.number:
        tell(f"{rank} is recorded in {_listed(outcome.paths)}")  # the first rank's report is enough on one terminal
        return outcome.code
    try:
        _finish_script(outcome, as_json=as_json)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the script's code is passed on whatever fails
        if wants_tracebacks():
            traceback.print_exc()
        why = str(error) if isinstance(error, TbdprofError | OSError) else defect_line("to report", error)
        tell(f"recorded in {_listed(outcome.paths)}, but the report failed: {why}")
    return outcome.code


def _finish_script(outcome: "Outcome", *, as_json: bool) -> None:
    """Print the report of a script; of several ranks the comparison, of those whose files can be read."""
    from tbdprof.cli import several
    from tbdprof.launch import script as scripts

    if len(outcome.paths) == 1:
        _finish(scripts.recorded(outcome.paths[0], outcome), outcome.paths[0], as_json=as_json)
        return
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


def _refuse_script(words: Sequence[str]) -> None:
    """Refuse words that name a script or start Python, and say how to profile a script."""
    from tbdprof.launch.script import AS_SCRIPT

    file = next((at for at, word in enumerate(words) if word.endswith(".py")), None)
    if file is not None:
        command = words[: file + 1] if file else ("python", words[0])
    elif words and words[0].startswith("python"):
        command = words
    else:
        return
    raise UsageError(f"{AS_SCRIPT} {shlex.join(command)}")


def _say_interrupted(error: KeyboardInterrupt, kept: str) -> int:
    """Say that a run was interrupted, and return its exit code."""
    said = str(error) if isinstance(error, ending.Terminated) else "interrupted"
    return fail(f"{said}; {kept}", ending.OF_SIGNAL + ending.number(error))


def _finish(recording: Recording, path: Path, *, as_json: bool) -> int:
    summary = summarize(recording)
    emit(json_report.render(summary) if as_json else terminal.render(summary, color=sys.stdout.isatty()))
    failed = recording.missing.get(RemarkOn.FILE)
    tell(failed or f"recorded in {path}")
    return 1 if failed else 0


def _progress() -> LiveProgress | PlainProgress:
    return LiveProgress() if sys.stderr.isatty() else PlainProgress()


def _split(words: Sequence[str], switches: Collection[str]) -> tuple[str | None, dict[str, str]]:
    """Separate the model from its options, given as `--name value` or `--name=value`; a switch may stand alone."""
    model, options, rest = None, dict[str, str](), list(words)
    while rest:
        word = rest.pop(0)
        if word.startswith("-"):
            name, equals, value = word.lstrip("-").partition("=")
            if name in switches and not equals and (not rest or rest[0] not in SWITCH):
                equals, value = "=", SWITCH[-1]
            if not equals and (not rest or rest[0].startswith("-")):
                raise UsageError(f"{word} needs a value, or is no option of tbdprof run{_meant(word)}")
            options[name.replace("-", "_")] = value if equals else rest.pop(0)
        elif model is None:
            model = word
        else:
            raise UsageError(f"one model at a time: {model} or {word}?")
    return model, options


def _check_options(spec: "Spec", options: Mapping[str, object]) -> None:
    """Refuse an unknown option if a known one is similar, of the model or of this command, and name that one."""
    flags = {option.name: _flag(option.name) for option in spec.options}
    for name in options:
        meant = "" if name in flags else _meant(_flag(name), flags.values())
        if meant:
            raise UsageError(f"{spec.name} has no option {_flag(name)}{meant}")


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _meant(word: str, more: Iterable[str] = ()) -> str:
    known = [opt for param in click.get_current_context().command.params for opt in param.opts]
    near = get_close_matches(word, [*known, *more], 1)
    return f" (did you mean {near[0]}?)" if near else ""
