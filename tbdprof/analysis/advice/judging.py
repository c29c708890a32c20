"""What each trial brought beside the plain run, ranked, and how the verdict's advice fared.

A trial is compared as `analysis.comparison` compares any two recordings: an interval that contains 1 is no difference.
The plain run is measured a second time, as the last point. Where the two differ, the machine changed meanwhile, and a
trial that differs by no more than they do is no gain.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tbdprof.analysis.comparison.facts import Run, facts_of
from tbdprof.analysis.comparison.sides import compare_runs
from tbdprof.results.advice import Advised, Choice, JudgedAdvice, Losses, Plain, Result, Settings, Trial
from tbdprof.results.compare import CANNOT_TELL, FASTER, NO_DIFFERENCE, SLOWER, Comparison, Pair
from tbdprof.results.summary import Summary
from tbdprof.results.sweep import End

NAMED = "plain"
ONCE_MORE = "plain, again"
RESULTS = {
    FASTER: Result.FASTER,
    NO_DIFFERENCE: Result.NO_DIFFERENCE,
    CANNOT_TELL: Result.CANNOT_TELL,
    SLOWER: Result.SLOWER,
}
ENDS = {End.OUT_OF_MEMORY: Result.OUT_OF_MEMORY, End.FAILED: Result.FAILED}
ITSELF = "it differs by no more than the plain run from itself"


@dataclass(frozen=True, slots=True)
class Measured:
    """A choice that was tried: how it ended, and its recording's summary if it has one."""

    choice: Choice
    end: End
    reason: str | None
    summary: Summary | None
    losses: Losses
    seconds: float | None = None


def advised(plain: Summary, losses: Losses, tried: Sequence[Measured], again: Measured | None = None) -> Advised:
    """Return what each trial brought; `again` is the plain run once more."""
    every = [*tried, *([] if again is None else [again])]
    recorded = [each for each in every if each.summary is not None]
    comparison = _compared(plain, recorded, again)
    pairs = {} if comparison is None else dict(zip(map(id, recorded), comparison.pairs, strict=True))
    repeated = None if again is None else _trial(again, pairs.get(id(again)), ONCE_MORE)
    trials = [_trial(each, pairs.get(id(each)), name_of(each.choice.settings)) for each in tried]
    ranked = tuple(sorted((_not_noise(each, repeated) for each in trials), key=_rank))
    return Advised(_plain(plain, losses), ranked, _judged(plain, ranked), repeated, comparison)


def name_of(settings: Settings) -> str:
    """Return what was set, as people read it: a switch that is on by its name alone."""
    return ", ".join(
        name.replace("_", " ") if value == "on" else f"{name.replace('_', ' ')} {value}"
        for name, value in settings.items()
    )


def _compared(plain: Summary, recorded: Sequence[Measured], again: Measured | None) -> Comparison | None:
    if not recorded:
        return None
    names = [ONCE_MORE if each is again else name_of(each.choice.settings) for each in recorded]
    others = [[Run(name, each.summary)] for name, each in zip(names, recorded, strict=True) if each.summary is not None]
    return compare_runs([[Run(NAMED, plain)], *others])


def _trial(measured: Measured, pair: Pair | None, name: str) -> Trial:
    if pair is None:
        result, reason = ENDS.get(measured.end, Result.FAILED), measured.reason or "it has no recording"
    else:
        result, reason = RESULTS[pair.verdict], pair.reason
    return Trial(name, measured.choice, result, reason, pair, measured.losses, measured.seconds)


def _not_noise(trial: Trial, again: Trial | None) -> Trial:
    """Return a trial, of which one cannot tell what it brought if the plain run differs from itself by as much."""
    if trial.result not in (Result.FASTER, Result.SLOWER) or again is None:
        return trial
    if again.result is Result.NO_DIFFERENCE or _distance(trial) > _distance(again):
        return trial
    return replace(trial, result=Result.CANNOT_TELL, reason=ITSELF)


def _ratio(trial: Trial) -> float | None:
    return None if trial.pair is None else trial.pair.throughput.ratio


def _distance(trial: Trial) -> float:
    """Return how far a trial's throughput is from that of the plain run, as the logarithm of the ratio."""
    ratio = _ratio(trial)
    return 0.0 if not ratio or ratio < 0 else abs(math.log(ratio))


def _rank(trial: Trial) -> tuple[int, float]:
    return [*Result].index(trial.result), -(_ratio(trial) or 0.0)


def _judged(plain: Summary, ranked: Sequence[Trial]) -> tuple[JudgedAdvice, ...]:
    texts = () if plain.verdict is None else plain.verdict.advice
    return tuple(JudgedAdvice(text, tuple(each for each in ranked if text in each.choice.advice)) for text in texts)


def _plain(plain: Summary, losses: Losses) -> Plain:
    found, memory = plain.throughput, plain.memory
    facts: Mapping[str, str] = facts_of(plain)
    return Plain(
        facts=facts,
        rate_per_s=None if found is None else found.rate.per_s,
        rate_interval=None if found is None else found.rate.interval,
        unit=plain.recording.run.unit if found is None else found.unit,
        peak_bytes=None if memory is None else memory.peak_bytes,
        losses=losses,
        verdict=None if plain.verdict is None else plain.verdict.sentence,
        no_verdict=plain.missing.get("verdict", "not measured") if plain.verdict is None else "",
    )
