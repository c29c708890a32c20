"""Sums over kernels: FLOPs, bytes and time, each over the kernels for which it is known."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tbdprof.analysis.kernels.kernels import Kernels
from tbdprof.facts.arrays import Bools, Floats, Rows, ranked
from tbdprof.facts.records import Peaks


@dataclass(frozen=True, slots=True)
class Sums:
    """One entry per key, over all counted steps."""

    calls: Floats
    seconds: Floats  # own time
    counted: Floats  # number of kernels with a FLOP count
    flops: Floats
    counted_seconds: Floats  # of those with a count
    reached_flops: Floats  # of those with a count and a peak
    possible_flops: Floats  # the FLOPs at peak in the time of those
    reached_seconds: Floats
    moved: Floats  # number of kernels whose bytes were reported
    moved_bytes: Floats
    moved_seconds: Floats  # of those
    both_flops: Floats  # of those with a count and bytes
    both_bytes: Floats


def sums(kernels: Kernels, key: Rows, size: int, peaks: Peaks | None) -> Sums:
    """Return the sums over the kernels of each key; keys are below `size`."""

    def add(values: Floats, known: Bools) -> Floats:
        total: Floats = np.bincount(key[known], values[known], size).astype(np.float64)
        return total

    def number(known: Bools) -> Floats:
        return np.bincount(key[known], minlength=size).astype(np.float64)

    seconds, peak = kernels.own_ns / 1e9, _peak_of(kernels, peaks)
    counted, moved = np.isfinite(kernels.flops), np.isfinite(kernels.moved_bytes)
    limited = counted & np.isfinite(peak)
    return Sums(
        calls=np.bincount(key, minlength=size).astype(np.float64),
        seconds=np.bincount(key, seconds, size).astype(np.float64),
        counted=number(counted),
        flops=add(kernels.flops, counted),
        counted_seconds=add(seconds, counted),
        reached_flops=add(kernels.flops, limited),
        possible_flops=add(peak * seconds, limited),
        reached_seconds=add(seconds, limited),
        moved=number(moved),
        moved_bytes=add(kernels.moved_bytes, moved),
        moved_seconds=add(seconds, moved),
        both_flops=add(kernels.flops, counted & moved),
        both_bytes=add(kernels.moved_bytes, counted & moved),
    )


def by_precision(kernels: Kernels, figure: Callable[[str, bool], float | None]) -> Floats:
    """Return, for each kernel, a figure by its precision and whether it is `of_product`; nan if not known."""
    keys, key = ranked(2 * kernels.precision + kernels.of_product)
    found = [figure(kernels.strings[int(each) // 2], bool(each % 2)) for each in keys]
    return np.array([np.nan if each is None else each for each in found], np.float64)[key]


def _peak_of(kernels: Kernels, peaks: Peaks | None) -> Floats:
    """Return the peak of each kernel in FLOP/s, or nan if not known."""
    if peaks is None:
        return np.full(len(kernels), np.nan)
    return by_precision(kernels, lambda precision, product: peaks.of(precision, product=product))


def ratio(above: float, below: float) -> float | None:
    """Return the quotient, or None if the divisor is 0."""
    return float(above / below) if below else None
