"""The words on the command line: models, their options, what is said of a script, and what is refused."""

import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from tbdprof.errors import UsageError
from tbdprof.facts.consumed import STEPS
from tbdprof.launch.order import Said
from tbdprof.launch.request import RunRequest
from tbdprof.loop.plan import Schedule
from tbdprof.suite.workload import SWITCH

if TYPE_CHECKING:
    from tbdprof.suite.workload import Spec

SCRIPT_OPTIONS = {
    *("framework", "steps", "warmup", "max_warmup", "repeat", "output", "force"),
    *("samples_per_step", "unit", "precision"),
    *("words", "as_json", "html", "live", "quiet", "verbose", "require_recording"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Typed:
    """What was typed of a run: the part that `tbdprof run`, `sweep` and `advise` share."""

    words: Sequence[str]
    framework: str | None
    device: str
    precision: str
    threads: int | None
    steps: int | None
    warmup: int | None
    max_warmup: int | None
    repeat: int = 1
    data: str
    seed: int
    as_json: bool
    quiet: bool

    @property
    def schedule(self) -> Schedule:
        """Return how long the parts of the run last."""
        return Schedule(steps=self.steps, warmup=self.warmup, max_warmup=self.max_warmup, repeat=self.repeat)

    def request(self) -> RunRequest:
        """Return the run of the one model that was typed; raise UsageError if it cannot be run."""
        models, options = models_and_options(self.words)
        if len(models) > 1:
            raise UsageError(f"one model at a time: {models[0]} or {models[1]}?")
        return self.request_of(models[0], chosen_framework(models[0], self.framework), options)

    def request_of(self, model: str, framework: str, options: Mapping[str, str]) -> RunRequest:
        """Return the run of a model with its own options."""
        return RunRequest(
            model,
            framework,
            self.device,
            precision=self.precision,
            threads=self.threads,
            schedule=self.schedule,
            seed=self.seed,
            options=options,
            data=folder_of(self.data),
        )


def models_and_options(words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return the models that were typed, and their own options; raise UsageError if one has no such option.

    Raise it also if a model is unknown, or if none was typed.
    """
    from tbdprof import suite

    _refuse_script(words)
    models, options = _split(words, suite.alone())
    if not models:
        raise UsageError(f"no model given: choose one of {', '.join(suite.names())}, or a script after --")
    for model in models:
        _check_options(suite.find(model), options)
    return models, options


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


def refuse_unheeded(words: Sequence[str], heeded: Collection[str] = frozenset(SCRIPT_OPTIONS)) -> None:
    """Refuse words before `--` that only a model of the suite would use."""
    if words:
        raise UsageError(f"unexpected {words[0]!r} before --: give a model, or a script after --, not both")
    context = click.get_current_context()
    for name in context.params.keys() - set(heeded):
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise UsageError(f"{_flag(name)} is for the models of the suite: give a script its own options after --")


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


def _split(words: Sequence[str], switches: Collection[str]) -> tuple[list[str], dict[str, str]]:
    """Separate the models from their options, given as `--name value` or `--name=value`; a switch may stand alone."""
    models, options, rest = list[str](), dict[str, str](), list(words)
    while rest:
        word = rest.pop(0)
        if word.startswith("-"):
            name, equals, value = word.lstrip("-").partition("=")
            if name in switches and not equals and (not rest or rest[0] not in SWITCH):
                equals, value = "=", SWITCH[-1]
            if not equals and (not rest or rest[0].startswith("-")):
                flags = [f"--{name}" for name in switches]
                command = f"tbdprof {click.get_current_context().info_name}"
                raise UsageError(f"{word} needs a value, or is no option of {command}{_meant(word, flags)}")
            options[name.replace("-", "_")] = value if equals else rest.pop(0)
        else:
            models.append(word)
    return models, options


def _check_options(spec: "Spec", options: Mapping[str, object]) -> None:
    """Refuse an unknown option if a known one is similar, of the model or of this command, and name that one."""
    from tbdprof.suite.switches import ALL

    flags = {name: _flag(name) for name in (*(option.name for option in spec.options), *ALL)}
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
