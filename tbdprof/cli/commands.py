"""What `tbdprof run` does with what was typed."""

import shlex
import sys
import traceback
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from tbdprof.analysis.summary import summarize
from tbdprof.cli.progress import LiveProgress, PlainProgress
from tbdprof.errors import TbdprofError, UsageError
from tbdprof.facts.recording import Recording, load
from tbdprof.loop.plan import silent
from tbdprof.report import json_report, terminal
from tbdprof.suite.workload import SWITCH

if TYPE_CHECKING:
    from tbdprof.suite.workload import Spec

INTERRUPTED = 130
SCRIPT_OPTIONS = {"framework", "steps", "warmup", "max_warmup", "repeat", "output", "force"}


def run(
    words: Sequence[str],
    script: Sequence[str] | None,
    asked: dict[str, Any],
    *,
    as_json: bool,
    quiet: bool,
    verbose: bool,
) -> int:
    """Run a model of the suite, or a script, print its report, and return the exit code."""
    try:
        if script is None:
            return _run_model(words, asked, as_json=as_json, quiet=quiet)
        return _run_script(words, script, asked, as_json=as_json)
    except TbdprofError:
        if verbose:
            traceback.print_exc()
        raise


def _run_model(words: Sequence[str], asked: dict[str, Any], *, as_json: bool, quiet: bool) -> int:
    from tbdprof import suite
    from tbdprof.launch import counted_step, suite_run
    from tbdprof.suite.data.datasets import SYNTHETIC

    _refuse_script(words)
    model, options = _split(words, suite.switches())
    if model is None:
        raise UsageError(f"no model given: choose one of {', '.join(suite.names())}, or a script after --")
    _check_framework(model, asked["framework"])
    _check_options(suite.find(model), options)
    if not asked["data"]:  # which a Path takes for the current folder
        raise UsageError(f"--data is empty: give the folder of the data set, or {SYNTHETIC}")
    asked["data"] = None if asked["data"] == SYNTHETIC else Path(asked["data"])
    asked["power_period_ms"] = asked.pop("power_period")
    counts = asked.pop("exact")
    if counts:
        counted_step.refuse(asked["device"])
    request = suite_run.Request(model=model, options=options, **asked)
    path = request.path()
    older = _version(path)
    try:
        with nullcontext(silent) if quiet else _progress() as progress:
            recording = suite_run.run(request, path, progress)
            if counts:
                recording = counted_step.add(recording, request, path, progress)
    except KeyboardInterrupt:
        kept = f"what was recorded is in {path}" if _version(path) not in (None, older) else "nothing was recorded yet"
        click.echo(f"tbdprof: interrupted; {kept}", err=True)
        return INTERRUPTED
    return _finish(recording, path, as_json=as_json)


def train_check(model: str, asked: dict[str, Any], *, as_json: bool, quiet: bool) -> int:
    """Train a model on small generated data, print what it learned, and return 0 where that passes."""
    from tbdprof.launch import train_check as checks
    from tbdprof.report import learning

    _check_framework(model, asked["framework"])
    try:
        with nullcontext(silent) if quiet else _progress() as progress:
            checked = checks.run(checks.Request(model, **asked), progress)
    except KeyboardInterrupt:
        click.echo("tbdprof: interrupted; nothing is kept of a check", err=True)
        return INTERRUPTED
    click.echo(learning.as_json(checked) if as_json else learning.as_text(checked))
    return 0 if checked.learned.passed else 1


def _check_framework(model: str, framework: str | None) -> None:
    from tbdprof import suite

    carried = suite.frameworks(model)
    if framework is None:
        raise UsageError(f"no framework given: add --framework {' or '.join(carried)}")


def _run_script(words: Sequence[str], script: Sequence[str], asked: dict[str, Any], *, as_json: bool) -> int:
    from tbdprof.launch import script as scripts

    if words:
        raise UsageError(f"unexpected {words[0]!r} before --: give a model, or a script after --, not both")
    if not script:
        raise UsageError("nothing after --: give the command to profile, as in: tbdprof run -- python train.py")
    _refuse_unheeded(asked)
    path = asked["output"] or scripts.default_path(script)
    code = scripts.run(script, path, asked, quiet_stdout=as_json)
    if not path.exists():
        click.echo(f"tbdprof: {scripts.nothing_recorded(code)}", err=True)
        return code or 1
    _finish(load(path), path, as_json=as_json)
    return code


def _refuse_script(words: Sequence[str]) -> None:
    """Say how to profile a script where the words name one, or start a Python."""
    from tbdprof.launch.script import AS_SCRIPT

    file = next((at for at, word in enumerate(words) if word.endswith(".py")), None)
    if file is not None:
        command = words[: file + 1] if file else ("python", words[0])
    elif words and words[0].startswith("python"):
        command = words
    else:
        return
    raise UsageError(f"{AS_SCRIPT} {shlex.join(command)}")


def _refuse_unheeded(asked: Mapping[str, Any]) -> None:
    """Refuse what was typed before `--` and only a model of the suite would heed."""
    context = click.get_current_context()
    for name in asked.keys() - SCRIPT_OPTIONS:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise UsageError(f"{_flag(name)} is for the models of the suite: give a script its own options after --")


def _version(path: Path) -> tuple[int, int, int] | None:
    """Return what tells a file from another one of the same name later, None where there is none."""
    if not path.exists():
        return None
    status = path.stat()
    return status.st_ino, status.st_mtime_ns, status.st_size


def _finish(recording: Recording, path: Path, *, as_json: bool) -> int:
    summary = summarize(recording)
    click.echo(json_report.render(summary) if as_json else terminal.render(summary, color=sys.stdout.isatty()))
    failed = recording.missing.get("file")
    click.echo(f"tbdprof: {failed}" if failed else f"tbdprof: recorded in {path}", err=True)
    return 1 if failed else 0


def _progress() -> LiveProgress | PlainProgress:
    return LiveProgress() if sys.stderr.isatty() else PlainProgress()


def _split(words: Sequence[str], switches: Collection[str]) -> tuple[str | None, dict[str, str]]:
    """Tell the model from its own options, given as `--name value` or `--name=value`; a switch may stand alone."""
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


def _check_options(spec: "Spec", options: Mapping[str, str]) -> None:
    """Refuse an unknown option with the one that was meant, whether the model's or this command's."""
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
