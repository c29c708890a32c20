"""By how much two groups of recordings differ: a random-effects model with the runs as its groups.

The log of a run's figure is its side's mean, plus an effect of the run (a variance between runs, alike on both sides),
plus an error within the run. Each run counts the same. The variance of a run's figure is then estimated by the larger
of two: that between the runs of a side, and the mean of those within the runs (which the former contains). The
interval is Student's t with as many degrees of freedom as there are runs, less two: Kalibera and Jones, "Rigorous
benchmarking in reasonable time", ISMM 2013, section 6, with the variances of both sides pooled.

One run a side shows no variance between runs. It is then taken to be that between the windows of a run: the spread of
single windows, not the smaller error of their mean. Runs that lie further apart in time may differ by more.

Blocks of steps are autocorrelated: what slows a machine lasts for many steps. So the error within a run comes from sums
over whole windows, which lie apart in time, or over stretches of consecutive blocks where there is one window.
"""

import math
from collections.abc import Sequence
from functools import cache
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from tbdprof.analysis.time.time_blocks import CONFIDENCE
from tbdprof.facts.arrays import Floats
from tbdprof.results.compare import BETWEEN, EXACT, WITHIN

ANGLES = 20_001
MOST_LOG = 300.0  # an interval beyond is as good as without an end
NO_SPREAD = "one recording a side does not show how this varies: give several a side, as a1.tbd,a2.tbd,a3.tbd"
ONE_BLOCK = "needs two blocks of steps or more"
NO_RATIO = "no ratio: it is 0, or not finite"
Interval = tuple[float, float]


class Estimate(NamedTuple):
    """A run's figure, and the variance of its error relative to it; None: not known, and `reason` says why."""

    value: float
    variance: float | None = None
    freedom: float = math.inf  # degrees of freedom of the variance
    reason: str = NO_SPREAD


class Effect(NamedTuple):
    """Two sides' means and what lies between them; the intervals are those of `results.compare.Change`."""

    baseline: float
    other: float
    ratio: float | None
    interval: Interval | None = None
    change_interval: Interval | None = None
    value_interval: Interval | None = None
    basis: str | None = None
    reason: str = ""


def exact(value: float) -> Estimate:
    """Return a count as an estimate without an error."""
    return Estimate(value, 0.0)


def ratio_of_sums(above: Sequence[Floats], below: Sequence[Floats]) -> Estimate:
    """Return sum(above) / sum(below) of a run's blocks; each array holds those of one window, in order.

    The variance is that of a ratio estimator with windows as clusters; of one window, with stretches of its blocks.
    """
    if len(above) == 1:
        count = math.isqrt(len(above[0]))
        above, below = np.array_split(above[0], count or 1), np.array_split(below[0], count or 1)
    sums = np.array([[each.sum(), other.sum()] for each, other in zip(above, below, strict=True)])
    total, over = sums.sum(axis=0)
    if not total or not over:
        return Estimate(0.0 if over else math.inf, reason=NO_RATIO)
    value, clusters = float(total / over), len(sums)
    if clusters < 2:
        return Estimate(value, reason=ONE_BLOCK)
    rest = sums[:, 0] - value * sums[:, 1]
    return Estimate(value, float(clusters / (clusters - 1) * (rest**2).sum() / total**2), clusters - 1)


@cache
def student(freedom: float) -> float:
    """Return the two-sided 95 % quantile of Student's t, to five digits; degrees of freedom need not be whole."""
    if freedom > 10_000:
        return NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    # With t = sqrt(n) tan(a), the density is that of cos(a)^(n - 1), which is finite for n of 1 and more.
    angles = np.linspace(0, math.pi / 2, ANGLES)
    density = np.cos(angles) ** (freedom - 1)
    below = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    angle = np.interp(CONFIDENCE, below / below[-1], angles)
    return float(math.sqrt(freedom) * math.tan(angle))


def effect(baseline: Sequence[Estimate], other: Sequence[Estimate]) -> Effect:
    """Return how a side differs from the baseline, with intervals where the variation is known."""
    if not all(math.isfinite(each.value) for each in (*baseline, *other)):
        return Effect(baseline[0].value, other[0].value, None, reason=NO_RATIO)
    is_positive = all(each.value > 0 for each in (*baseline, *other))
    sides = [_values(side, is_positive) for side in (baseline, other)]
    means = [_mean(side, is_positive) for side in (baseline, other)]
    found = Effect(means[0], means[1], means[1] / means[0] if means[0] > 0 else None)
    spread = _spread(baseline, other, sides, is_positive)
    if isinstance(spread, str):
        return found._replace(reason=spread)
    reach, own = spread.factor * spread.of_difference, spread.factor * spread.of_other
    if not is_positive:
        difference = found.other - found.baseline
        return found._replace(
            change_interval=(difference - reach, difference + reach),
            value_interval=(found.other - own, found.other + own),
            basis=spread.basis,
            reason=NO_RATIO,
        )
    low, high = ((found.ratio or 0.0) * each for each in _around(reach))
    return found._replace(
        interval=(low, high),
        change_interval=((low - 1) * found.baseline, (high - 1) * found.baseline),
        value_interval=(found.other * _around(own)[0], found.other * _around(own)[1]),
        basis=spread.basis,
    )


def _around(reach: float) -> Interval:
    return math.exp(-min(reach, MOST_LOG)), math.exp(min(reach, MOST_LOG))


class _Spread(NamedTuple):
    """Standard errors, what to multiply them by for 95 %, and what they are from."""

    of_difference: float
    of_other: float
    factor: float
    basis: str


def _spread(
    baseline: Sequence[Estimate], other: Sequence[Estimate], sides: Sequence[Floats], is_positive: bool
) -> _Spread | str:
    """Return the errors of two sides, whose values `sides` has on the scale that is used, or why none is known."""
    runs = (*baseline, *other)
    known = [each for each in runs if each.variance is not None]
    within = [(each.variance or 0.0) * (1.0 if is_positive else each.value**2) for each in known]
    if len(known) == len(runs) and not any(within) and all(len({*side}) == 1 for side in (baseline, other)):
        return _Spread(0.0, 0.0, 0.0, EXACT)
    if len(runs) > 2:
        between = sum(float(((values - values.mean()) ** 2).sum()) for values in sides) / (len(runs) - 2)
        variance = max(between, float(np.mean(within)) if within else 0.0)
        one, two = (math.sqrt(variance / len(side)) for side in (baseline, other))
        return _Spread(math.hypot(one, two), two, student(len(runs) - 2), BETWEEN)
    if len(known) < 2:
        return next(each.reason for each in runs if each.variance is None)
    clustered = [each * (run.freedom + 1) if each else 0.0 for each, run in zip(within, known, strict=True)]
    squares = sum(each**2 / run.freedom for each, run in zip(clustered, known, strict=True))
    freedom = sum(clustered) ** 2 / squares if squares else math.inf  # Satterthwaite's
    return _Spread(math.sqrt(sum(clustered)), math.sqrt(clustered[1]), student(freedom), WITHIN)


def _values(side: Sequence[Estimate], is_positive: bool) -> Floats:
    values = np.array([each.value for each in side], float)
    return np.log(values) if is_positive else values


def _mean(side: Sequence[Estimate], is_positive: bool) -> float:
    """Return the mean of a side, geometric where all values are above 0; equal values as they are, without rounding."""
    if len({each.value for each in side}) == 1:
        return side[0].value
    mean = float(_values(side, is_positive).mean())
    return math.exp(mean) if is_positive else mean
