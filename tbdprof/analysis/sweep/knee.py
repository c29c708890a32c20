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
from collections.abc import Iterator, Mapping, Sequence
from statistics import NormalDist

from tbdprof.facts.batches import SAMPLES
from tbdprof.results.found import Found, because
from tbdprof.results.sweep import End, Growth, Knee, KneeOf, SweepPoint
from tbdprof.results.time import Rate

SHARE = 0.05
LEAST = 3  # sizes
_TAIL = 0.025


def knees(points: Sequence[SweepPoint], swept: Sequence[str], batch: str | None) -> Iterator[KneeOf]:
    """Yield the knee of each group of points that differ in their batch only; `batch` is the setting that it is."""
    if batch is None:
        return
    varied = [name for name in swept if name != batch and len({point.settings.get(name) for point in points}) > 1]
    groups: dict[tuple[str | int, ...], list[SweepPoint]] = {}
    for point in points:
        groups.setdefault(tuple(point.settings[name] for name in varied), []).append(point)
    for values, group in groups.items():
        sizes = {str(point.settings[batch]): point for point in group}
        found = _of_group({int(size): point for size, point in sizes.items() if size.isdecimal()})
        yield KneeOf(dict(zip(varied, values, strict=True)), found.value, found.reason)


def _of_group(points: Mapping[int, SweepPoint]) -> Found[Knee | None]:
    """Return the knee of points by batch."""
    figures = {size: point.figures for size, point in points.items() if point.figures is not None}
    rates = {size: each.rate for size, each in figures.items() if each.rate is not None}
    units = [each.unit for each in figures.values()]
    over = [size for size, point in points.items() if point.end is End.OUT_OF_MEMORY]
    ends_at_memory = max(over, default=0) > max(rates, default=0)
    return knee(rates, units[0] if units else SAMPLES, ends_at_memory=ends_at_memory)


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
