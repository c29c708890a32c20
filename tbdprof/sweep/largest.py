"""The search for the largest size that fits: double until one does not, then approach it from both sides.

Each trial is a point of the sweep. What smaller sizes took of the memory gives a line; the size at which the line meets
the memory that is there is tried first, and then its neighbours, in steps that double. So a good forecast needs two
trials after the doubling, and a bad one no more than twice those of halving.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tbdprof.launch.forecast import size_that_fills

FIRST = 1
_NEIGHBOURS = 4  # trials after which the rest is halved


@dataclass(frozen=True, slots=True)
class Taken:
    """What a size that fits took of the memory, and how much there was; None: not known."""

    took_bytes: int | None = None
    room_bytes: int | None = None


def next_size(fits: Mapping[int, Taken], failed: frozenset[int], most: int | None = None) -> int | None:
    """Return the size to try next; None: the largest that fits is found, or none fits, or `most` was reached.

    `fits` are the sizes that were tried and fit, `failed` those that do not.
    """
    largest, least = max(fits, default=0), min(failed, default=None)
    if least is None:
        size = 2 * largest or FIRST
        return None if largest == most else size if most is None else min(size, most)
    if least - largest <= 1:
        return None
    if not largest:
        return least // 2
    bracket = _doubled(fits, least)
    trials = sum(1 for size in (*fits, *failed) if size > bracket) - 1  # one of them ended the doubling
    return _between(largest, least, _forecast(fits), trials)


def _doubled(fits: Mapping[int, Taken], least: int) -> int:
    """Return the largest size that the doubling reached."""
    size = FIRST
    while 2 * size in fits and 2 * size < least:
        size *= 2
    return size


def _between(largest: int, least: int, forecast: int | None, trials: int) -> int:
    middle = (largest + least) // 2
    if forecast is None or trials >= _NEIGHBOURS:
        return middle
    if largest < forecast < least:
        return forecast
    step = 1 << max(0, trials - 1)
    return min(largest + step, middle) if forecast <= largest else max(least - step, middle)


def _forecast(fits: Mapping[int, Taken]) -> int | None:
    """Return where the line through the two largest sizes meets the memory that is there; None: there is no line."""
    took = {size: each.took_bytes for size, each in fits.items() if each.took_bytes}
    room = fits[max(took)].room_bytes if took else None
    return None if room is None else size_that_fills(took, room)
