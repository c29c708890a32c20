"""Where throughput stops growing with the batch, and whether noise lets one say so.

A batch is compared with all others. It is surely below the best if 95 % of some other batch's throughput is
significantly above its own. It is surely near the best if its own is significantly above 95 % of each other one's. The
knee is the smallest batch that is near the best. It lies from the smallest that is not surely below to the smallest
that is surely near. Significance is that of a normal distribution, at 5 % for all comparisons of a batch together
(Bonferroni), with the standard errors of the recordings' intervals.

Observation 2 of the TBD paper (Zhu et al., 2018, arXiv:1803.06905) asks whether throughput is saturated where memory
ends.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist

from tbdprof.results.found import Found, because
from tbdprof.results.sweep import Growth, Knee
from tbdprof.results.time import Rate

SHARE = 0.05
LEAST = 3  # sizes
_TAIL = 0.025


def knee(
    rates: Mapping[int, Rate], unit: str, *, ends_at_memory: bool = False, share: float = SHARE
) -> Found[Knee | None]:
    """Return the knee of throughputs by batch, or why there is none."""
    sizes = sorted(rates)
    if len(sizes) < LEAST:
        return because(f"only {len(sizes)} batch sizes have a throughput: the knee needs {LEAST}")
    lacking = [size for size in sizes if rates[size].interval is None]
    if lacking:
        return because(f"the throughput of batch {lacking[0]} has no interval: run more steps")
    below, near = _judged([rates[size] for size in sizes], share)
    low = next(place for place, is_below in enumerate(below) if not is_below)
    high = next((place for place, is_near in enumerate(near) if is_near), len(sizes) - 1)
    best = max(sizes, key=lambda size: rates[size].per_s)
    return Found(
        Knee(
            low=sizes[low],
            high=sizes[max(low, high)],
            growth=_growth(low, high, near, len(sizes) - 1),
            best=best,
            best_rate=rates[best].per_s,
            unit=unit,
            largest=sizes[-1],
            ends_at_memory=ends_at_memory,
            measured=tuple(sizes),
            share=share,
        )
    )


def _judged(rates: Sequence[Rate], share: float) -> tuple[list[bool], list[bool]]:
    """Return which throughputs are surely below the best, and which are surely near it."""
    allowed = NormalDist().inv_cdf(1 - _TAIL / (len(rates) - 1))
    below, near = [], []
    for one in rates:
        leads = [_lead(one, other, 1 - share) for other in rates if other is not one]
        below.append(any(lead < -allowed for lead in leads))
        near.append(all(lead > allowed for lead in leads))
    return below, near


def _lead(one: Rate, other: Rate, factor: float) -> float:
    """Return by how many standard errors a throughput is above a share of another."""
    error = math.hypot(one.error or 0.0, factor * (other.error or 0.0))
    lead = one.per_s - factor * other.per_s
    return lead / error if error else math.copysign(math.inf, lead)


def _growth(low: int, high: int, near: Sequence[bool], last: int) -> Growth:
    if low == last:
        return Growth.GROWING
    return Growth.SATURATED if near[high] and high < last else Growth.UNCLEAR
