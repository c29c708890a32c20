"""The report of what was tried: a table ranked by measured gain, what changed, and how the advice fared."""

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from tbdprof.facts.units import bytes_text, percent_text
from tbdprof.report.advice.memory import trial_memory
from tbdprof.report.plain import plain
from tbdprof.report.terminal_parts.change_tables import change_text, longest
from tbdprof.report.terminal_parts.tables import Column, filled, printed, sheet
from tbdprof.results.advice import Advised, JudgedAdvice, Losses, Plain, Result, Trial
from tbdprof.results.compare import Change, Side
from tbdprof.results.time import WIDE

ROWS = 3  # kernels of each trial
LEAST_LOSS = 5e-5  # a smaller share of the loss is printed as 0.00 %
COLUMNS = (
    Column("tried", "word"),
    Column("pointed at", "word"),
    Column("result", "word"),
    Column("throughput"),
    Column("memory"),
    Column("loss"),
    Column("took"),
)
BELOW = (
    "pointed at: by the verdict; throughput: times the plain run's, with its 95 % interval, one run of each",
    "memory: change of the peak, a count, so without an interval; loss: after {steps} steps, and its change",
)
NO_GAIN = "nothing that was tried is seen to make it faster"
UNSURE = "no difference shows, but the interval is too wide to say that there is none"
NO_SWITCH = "no switch of this model tries it"
MEASURED_WORDS = {
    Result.FASTER: "it helped",
    Result.NO_DIFFERENCE: "no difference",
    Result.CANNOT_TELL: "cannot tell",
    Result.SLOWER: "it made it slower",
    Result.OUT_OF_MEMORY: "it ran out of memory",
    Result.FAILED: "it failed",
}


def render(advised: Advised, *, width: int | None = None, color: bool = False) -> str:
    """Return the report as text."""
    advised = plain(advised)
    parts: list[RenderableType] = [_head(advised), Text(), _table(advised), *_sentences(advised)]
    for trial in advised.trials:
        if trial.pair is not None and trial.pair.kernels and trial.pair.same_names:
            title = f"{trial.name}: kernels by the change of their time"
            parts += [Text(), longest(title, ("plain", trial.name), trial.pair.kernels, ROWS)]
    return printed(Group(*parts), width=width, color=color)


def _head(advised: Advised) -> RenderableType:
    facts = advised.plain.facts
    names = ("model", "framework", "framework version", "device", "device name", "precision")
    run = [facts[name] for name in names if name in facts]
    counts = [f"{name} {facts[name]}" for name in ("batch", "threads") if name in facts]
    rows = [
        ("run", Text(" · ".join([*run, *counts]))),
        ("plain", Text(" · ".join(_plain_text(advised.plain)))),
        ("verdict", Text(advised.plain.verdict or f"none: {advised.plain.no_verdict}")),
        *((f"advice {number}", Text(_judged_text(each))) for number, each in enumerate(advised.advice, 1)),
    ]
    return sheet(rows)


def _plain_text(plain_run: Plain) -> Iterator[str]:
    ends = plain_run.rate_interval
    if plain_run.rate_per_s is not None:
        half = "" if ends is None else f" ± {percent_text((ends[1] - ends[0]) / 2 / plain_run.rate_per_s)}"
        yield f"{plain_run.rate_per_s:.4g} {plain_run.unit}/s{half}"
    if plain_run.peak_bytes is not None:
        yield f"{bytes_text(plain_run.peak_bytes)} at the peak"
    losses = plain_run.losses
    if losses.last is not None:
        yield f"loss {losses.values[0]:.5g} before training, {losses.last:.5g} after {losses.steps} steps"
    elif losses.reason:
        yield f"no loss: {losses.reason}"


def _judged_text(judged: JudgedAdvice) -> str:
    if not judged.trials:
        return f"{judged.text} - {NO_SWITCH}"
    said = "; ".join(f"{trial.name}: {MEASURED_WORDS[trial.result]}{_times(trial)}" for trial in judged.trials)
    return f"{judged.text} - measured: {said}"


def _times(trial: Trial) -> str:
    change = None if trial.pair is None else trial.pair.throughput
    return (
        "" if change is None or change.ratio is None else f" ({_ratio(change)} {_interval(change)})".replace(" )", ")")
    )


def _table(advised: Advised) -> RenderableType:
    trials = [*advised.trials, *([] if advised.again is None else [advised.again])]
    rows = [_row(trial, advised.plain.losses) for trial in trials]
    below = [line.format(steps=advised.plain.losses.steps) for line in BELOW]
    return filled("Tried, by measured gain", COLUMNS, rows, below=below)


def _row(trial: Trial, losses: Losses) -> list[str]:
    change = None if trial.pair is None else trial.pair.throughput
    memory = trial_memory(trial)
    return [
        trial.name,
        "yes" if trial.choice.advice else "no",
        trial.result.value,
        "" if change is None else f"{_ratio(change)} {_interval(change)}".strip(),
        "" if memory is None else change_text(memory),
        "" if trial.losses.last is None else f"{trial.losses.last:.4g} {_loss_change(trial.losses, losses)}".strip(),
        "" if trial.seconds is None else f"{trial.seconds:.0f} s",
    ]


def _ratio(change: Change) -> str:
    return "" if change.ratio is None else f"{change.ratio:.3f}"


def _interval(change: Change) -> str:
    return "" if change.interval is None else f"[{change.interval[0]:.3f}, {change.interval[1]:.3f}]"


def _loss_change(losses: Losses, of_plain: Losses) -> str:
    """Return how a loss differs from the plain run's after as many steps, empty if one of them is not known."""
    one, other = of_plain.last, losses.last
    if one is None or other is None or not one or losses.steps != of_plain.steps:
        return ""
    if one == other:
        return "(same)"
    share = (other - one) / abs(one)
    return f"({100 * share:+.2f} %)" if abs(share) >= LEAST_LOSS else "(< 0.01 %)"


def _sentences(advised: Advised) -> Iterator[RenderableType]:
    yield Text()
    yield Text(_conclusion(advised), style="bold")
    if unsure := [trial.name for trial in advised.trials if _is_unsure(trial)]:
        yield Text(f"{', '.join(unsure)}: {UNSURE}")
    for trial in advised.trials:
        if trial.reason:
            yield Text(f"{trial.name}: {trial.result.value}: {trial.reason}")
        if trial.pair is not None and trial.losses.reason:
            yield Text(f"{trial.name}: no loss: {trial.losses.reason}")
    again = advised.again
    if again is not None and again.result not in (Result.NO_DIFFERENCE, Result.FAILED, Result.OUT_OF_MEMORY):
        yield Text(
            f"the plain run, measured again, was{_times(again) or ' not measured'}: the machine changed meanwhile, "
            "and changes of this size are no gain",
            style="yellow",
        )
    for remark in _remarks(() if advised.comparison is None else advised.comparison.sides):
        yield Text(remark, style="yellow")


def _remarks(sides: Sequence[Side]) -> Iterator[str]:
    """Yield what makes runs less sure, and which."""
    found: dict[str, list[str]] = {}
    for side in sides:
        for remark in side.remarks:
            found.setdefault(remark.removeprefix(side.label), []).append(f"'{side.names[0]}'")
    for remark, names in found.items():
        yield f"{', '.join(names)}{remark}"


def _conclusion(advised: Advised) -> str:
    faster = [trial for trial in advised.trials if trial.result is Result.FASTER]
    if not advised.trials:
        return "nothing was tried: the model has no switch for this framework"
    if not faster:
        return NO_GAIN if not any(map(_is_unsure, advised.trials)) else f"{NO_GAIN}, but this noise could hide a gain"
    best = faster[0]
    pointed = "the verdict points at it" if best.choice.advice else "the verdict does not point at it"
    return f"the best is {best.name}: {_ratio_text(best)} the plain run's throughput; {pointed}"


def _is_unsure(trial: Trial) -> bool:
    """Return whether no difference shows, but a large one could be there."""
    ends = None if trial.pair is None else trial.pair.throughput.interval
    return trial.result is Result.NO_DIFFERENCE and ends is not None and ends[1] > WIDE * ends[0]


def _ratio_text(trial: Trial) -> str:
    change = None if trial.pair is None else trial.pair.throughput
    return "" if change is None else f"{_ratio(change)} times {_interval(change)}".rstrip()
