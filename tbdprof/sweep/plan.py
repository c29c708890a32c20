"""What a sweep runs: a program, and the values of each setting that is swept.

A point is one value of each setting. Its name is that of its files.
"""

import hashlib
import itertools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import msgspec

from tbdprof import suite
from tbdprof.errors import UsageError
from tbdprof.launch.order import Said
from tbdprof.launch.request import RunRequest
from tbdprof.loop.plan import Schedule

FORMAT = 1
AGAIN = "again"  # a setting that changes nothing: the same once more
AUTO = "auto"  # in place of values: double until memory ends, then approach the largest that fits
Value = str | int
Settings = Mapping[str, Value]

_WHOLE = ("batch_size", "threads", "seed")  # settings of a model that are whole numbers
_OF_REQUEST = ("model", "framework", "device", "precision", *_WHOLE)
_OF_BATCH = ("batch_size", "batch", "bs", "b")  # as scripts name their batch size
_MOST_BYTES = 60  # of a value within a file's name


@dataclass(frozen=True, slots=True)
class Script:
    """A command line, with `{name}` where the value of a swept setting goes."""

    command: tuple[str, ...]
    framework: str | None = None
    schedule: Schedule = field(default_factory=Schedule)
    said: Said = field(default_factory=Said)

    def at(self, settings: Settings) -> "Script":
        """Return the script with the values of a point."""
        command = tuple(_filled(word, settings) for word in self.command)
        return replace(self, command=command)


@dataclass(frozen=True, slots=True)
class Point:
    """One point of a sweep."""

    name: str
    settings: Settings


@dataclass(frozen=True, slots=True)
class Plan:
    """A program and the values of each swept setting; those of `automatic` are found while the sweep runs.

    Where there are `chosen` settings, the points are these, and not all combinations of the axes' values.
    """

    program: RunRequest | Script
    axes: Mapping[str, tuple[Value, ...]]
    automatic: str | None = None  # a setting whose largest value that fits is looked for
    most: int | None = None  # the largest value to try of it
    chosen: tuple[Settings, ...] = ()
    loss_steps: int | None = None  # training steps whose losses are kept of each point, beside its recording

    @property
    def swept(self) -> tuple[str, ...]:
        """Return the names of the settings that differ between points."""
        of_chosen = dict.fromkeys(name for settings in self.chosen for name in settings)
        return (*self.axes, *of_chosen, *([] if self.automatic is None else [self.automatic]))

    @property
    def batch(self) -> str | None:
        """Return the setting that is the batch size, or None if none of the swept ones is."""
        return next((name for name in self.swept if name.replace("-", "_").lower() in _OF_BATCH), None)

    def combinations(self) -> Iterator[dict[str, Value]]:
        """Yield the settings of all points, the last axis fastest, without that of `automatic`."""
        if self.chosen:
            yield from map(dict, self.chosen)
            return
        for values in itertools.product(*self.axes.values()):
            yield dict(zip(self.axes, values, strict=True))

    def point(self, settings: Settings) -> Point:
        """Return the point of some settings."""
        return Point("-".join(self._words(settings)) or "point", dict(settings))

    def program_at(self, settings: Settings) -> RunRequest | Script:
        """Return what a point runs."""
        if isinstance(self.program, Script):
            return self.program.at(settings)
        own = {name: value for name, value in settings.items() if name in _OF_REQUEST}
        options = {name: value for name, value in settings.items() if name not in (*_OF_REQUEST, AGAIN)}
        changed: dict[str, Any] = {**own, "options": {**self.program.options, **options}}
        return replace(self.program, **changed)

    def _words(self, settings: Settings) -> Iterator[str]:
        if isinstance(self.program, RunRequest):
            yield _slug(settings.get("model", self.program.model))
            yield _slug(settings.get("framework", self.program.framework))
        for name, value in settings.items():
            if name not in ("model", "framework") or isinstance(self.program, Script):
                yield f"{_slug(name)}={_slug(value)}"


def value_of(name: str, text: str) -> Value:
    """Return a value of a model's setting as its type; raise UsageError if it has none of that type."""
    if name not in _WHOLE:
        return text
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"{name} is {text!r}: give whole numbers, separated by commas") from None


def values_of(text: str) -> list[str]:
    """Return the values of a text such as `1,2,4`, each once."""
    return list(dict.fromkeys(filter(None, (each.strip() for each in text.split(",")))))


def axis(text: str) -> tuple[str, list[str]]:
    """Return the name and the values of a text such as `depth=18,50`; raise UsageError if it is none."""
    name, equals, values = text.partition("=")
    if not equals or not name.strip() or not values_of(values):
        raise UsageError(f"--set is {text!r}: give a name and its values, such as --set precision=fp32,bf16")
    return name.strip(), values_of(values)


def check(plan: Plan) -> None:
    """Raise UsageError if a point cannot be run as it was typed; nothing runs before all can."""
    if isinstance(plan.program, Script):
        words = " ".join(plan.program.command)
        for name in plan.swept:
            if f"{{{name}}}" not in words:
                raise UsageError(f"--set {name} is nowhere in the command: put {{{name}}} where its value goes")
        return
    for settings in plan.combinations():
        request = plan.program_at(settings)
        if isinstance(request, RunRequest):
            suite.check_framework(suite.find(request.model), request.framework)
            request.config()


def as_json(plan: Plan) -> str:
    """Return a plan as text that people can read, too."""
    program = plan.program
    kind, fields = ("script", asdict(program)) if isinstance(program, Script) else ("model", _fields(program))
    axes = {name: list(values) for name, values in plan.axes.items()}
    written = {"format": FORMAT, kind: fields, "axes": axes, "automatic": plan.automatic, "most": plan.most}
    if plan.chosen:
        written["chosen"] = [dict(settings) for settings in plan.chosen]
    if plan.loss_steps is not None:
        written["loss_steps"] = plan.loss_steps
    return json.dumps(written, indent=2) + "\n"


def from_json(text: bytes) -> Plan:
    """Return the plan that a text from `as_json` holds; raise ValueError or TypeError if it holds none."""
    found = msgspec.json.decode(text, type=_Written)
    if found.format > FORMAT:
        raise ValueError("it was written by a newer version of tbdprof: upgrade tbdprof")
    if found.script is None and found.model is None:
        raise ValueError("it names neither a model nor a script")
    program = found.script or RunRequest.from_json(json.dumps(found.model))
    return Plan(program, found.axes, found.automatic, found.most, found.chosen, found.loss_steps)


class _Written(msgspec.Struct, forbid_unknown_fields=True):
    format: int
    axes: dict[str, tuple[Value, ...]]
    model: dict[str, Any] | None = None
    script: Script | None = None
    automatic: str | None = None
    most: int | None = None
    chosen: tuple[dict[str, Value], ...] = ()
    loss_steps: int | None = None


def _fields(request: RunRequest) -> dict[str, Any]:
    """Return the settings of a request, without those of its file: each point has its own."""
    fields: dict[str, Any] = json.loads(request.to_json())
    return {name: value for name, value in fields.items() if name not in ("output", "force")}


def _filled(word: str, settings: Settings) -> str:
    for name, value in settings.items():
        word = word.replace(f"{{{name}}}", str(value))
    return word


def _slug(value: Value) -> str:
    """Return a value as a part of a file's name: other characters are replaced, and a hash keeps such names apart."""
    text = str(value)
    clean = re.sub(r"[^A-Za-z0-9._+]", "_", text)[:_MOST_BYTES]
    if clean == text:
        return text
    return f"{clean}~{hashlib.sha256(text.encode()).hexdigest()[:6]}"


def merged(old: Plan, new: Plan) -> Plan | None:
    """Return a plan with the values of both, or None if they differ in more than the values of their axes."""
    if (old.program, old.automatic, old.loss_steps) != (new.program, new.automatic, new.loss_steps):
        return None
    if [*old.axes] != [*new.axes] or bool(old.chosen) != bool(new.chosen):
        return None
    axes = {name: tuple(dict.fromkeys((*old.axes[name], *new.axes[name]))) for name in old.axes}
    chosen = (*old.chosen, *(settings for settings in new.chosen if settings not in old.chosen))
    return replace(new, axes=axes, chosen=chosen)
