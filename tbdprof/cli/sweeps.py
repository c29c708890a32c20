"""The work of `tbdprof sweep`: its plan from the words on the command line, and its report."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tbdprof.cli import words
from tbdprof.cli.progress import of_sweep
from tbdprof.cli.streams import emit, say_interrupted
from tbdprof.cli.words import chosen_framework, models_and_options, refuse_unheeded, said_of_script
from tbdprof.errors import UsageError
from tbdprof.launch.request import RunRequest
from tbdprof.report import sweep as reports
from tbdprof.results.sweep import End, Sweep
from tbdprof.sweep import folder as folders
from tbdprof.sweep.cluster import following
from tbdprof.sweep.cluster.following import Cluster, cluster
from tbdprof.sweep.plan import AUTO, Plan, Script, Value, axis, check, value_of, values_of
from tbdprof.sweep.running import outcomes, run, seconds

FAILED = 1
OF_SCRIPTS = {
    *("framework", "batch_size", "max_batch_size", "axes", "steps", "warmup", "max_warmup", "precision"),
    *("words", "output", "on", "gpus", "as_json", "quiet", "verbose"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Typed(words.Typed):
    """What was typed after `tbdprof sweep`."""

    script: Sequence[str] | None  # what stands after --
    batch_size: str | None
    max_batch_size: int | None
    axes: Sequence[str]
    output: Path
    on: str | None
    gpus: int | None


def run_typed(typed: Typed) -> int | None:
    """Run a sweep as it was typed, or what has not ended of the one in its folder.

    Return the exit code if a signal interrupted it, None if all points have ended.
    """
    plan: Plan | None = None
    on = cluster(typed.on, typed.gpus)
    if typed.script is not None:
        refuse_unheeded(typed.words, OF_SCRIPTS)
        plan = _plan_of_script(typed.script, typed)
    elif typed.words or typed.framework or typed.batch_size or typed.axes:
        plan = _plan_of_models(typed)
    return _run_sweep(plan, typed.output, on, quiet=typed.quiet)


def _plan_of_models(typed: Typed) -> Plan:
    """Return the plan of a sweep over models of the suite; raise UsageError if a point cannot be run."""
    models, options = models_and_options(typed.words)
    frameworks = values_of(chosen_framework(models[0], typed.framework))
    request = typed.request_of(models[0], frameworks[0], options)
    swept = {"model": models, "framework": frameworks, **_axes_of_models(typed)}
    values = {name: [value_of(name, each) for each in given if each != AUTO] for name, given in swept.items()}
    return _checked(request, swept, values, typed.max_batch_size)


def _plan_of_script(command: Sequence[str], typed: Typed) -> Plan:
    """Return the plan of a sweep over a script's settings; raise UsageError if a value has no place in its command."""
    if not command:
        raise UsageError("nothing after --: give the command to sweep, as in: -- python train.py --batch {batch}")
    if typed.batch_size is not None:
        raise UsageError("--batch-size is for models: type --set batch=1,2 and put {batch} into the command")
    swept = _axes(typed.axes, None)
    if not swept:
        raise UsageError("nothing to sweep: add --set NAME=V1,V2 and put {NAME} into the command")
    said = said_of_script(None, None, typed.precision)
    script = Script(tuple(command), typed.framework, typed.schedule, said)
    values: dict[str, list[Value]] = {name: [each for each in given if each != AUTO] for name, given in swept.items()}
    return _checked(script, swept, values, typed.max_batch_size)


def _axes_of_models(typed: Typed) -> dict[str, list[str]]:
    """Return the values of each setting of a model that is swept, by its name in Python: `image_size`."""
    return {name.replace("-", "_"): values for name, values in _axes(typed.axes, typed.batch_size).items()}


def _axes(texts: Sequence[str], batch_size: str | None) -> dict[str, list[str]]:
    """Return the values of each setting that is swept, as typed."""
    pairs = [axis(text) for text in texts]
    if batch_size is not None:
        if not values_of(batch_size):
            raise UsageError("--batch-size is empty: give sizes separated by commas, or auto")
        pairs.append(("batch_size", values_of(batch_size)))
    found: dict[str, list[str]] = {}
    for name, values in pairs:
        if name in found:
            raise UsageError(f"{name} is given twice: give all its values at once, separated by commas")
        found[name] = values
    return found


def _checked(
    program: RunRequest | Script,
    swept: Mapping[str, Sequence[str]],
    values: Mapping[str, Sequence[Value]],
    most: int | None,
) -> Plan:
    automatic = [name for name, given in swept.items() if AUTO in given]
    if len(automatic) > 1:
        raise UsageError(f"{' and '.join(automatic)} are both {AUTO}: give the values of one of them")
    for name in automatic:
        if len(swept[name]) > 1:
            raise UsageError(f"{name} is {AUTO} and has values: give either")
    if most is not None and not automatic:
        raise UsageError(f"--max-batch-size is the limit of {AUTO}: type --batch-size {AUTO}")
    axes = {name: tuple(given) for name, given in values.items() if name not in automatic}
    plan = Plan(program, axes, automatic[0] if automatic else None, most)
    check(plan)
    return plan


def _run_sweep(plan: Plan | None, path: Path, on: Cluster | None, *, quiet: bool) -> int | None:
    """Run what has not ended of a sweep; no plan: of that in the folder."""
    if plan is None:
        folders.load(path)
    with folders.locked(path):
        folder = folders.load(path) if plan is None else folders.opened(path, plan)
        try:
            with of_sweep(seconds(folder), quiet=quiet) as watcher:
                if on is None:
                    run(folder, watcher)
                else:
                    following.run(folder, watcher, on)
        except KeyboardInterrupt as error:
            again = f"tbdprof sweep -o {shlex.quote(str(path))}{'' if on is None else f' {on.option}'}"
            ended = len(outcomes(folder))
            return say_interrupted(error, f"{ended} point{'s' * (ended != 1)} ended; go on with: {again}")
    return None


def report(found: Sweep, *, as_json: bool) -> int:
    """Print the report of a sweep's points that have ended; return 1 if one failed."""
    emit(reports.render_json(found) if as_json else reports.render(found, color=sys.stdout.isatty()))
    return FAILED if any(point.end == End.FAILED for point in found.points) else 0
