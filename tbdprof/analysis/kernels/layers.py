"""Time, FLOPs and utilization by layer; the layers' own times add up to those of all kernels."""

import numpy as np

from tbdprof.analysis.kernels.kernels import Kernels
from tbdprof.analysis.kernels.sums import ratio, sums
from tbdprof.facts.arrays import Bools, Floats, Rows, ranked
from tbdprof.facts.records import Peaks, Phase
from tbdprof.results.kernels import LayerTime

BACKWARD = (Phase.BACKWARD, Phase.RECOMPUTE)


def layers(kernels: Kernels, peaks: Peaks | None) -> tuple[LayerTime, ...]:
    """Return the layers, the longest first."""
    names, key = ranked(kernels.layer)
    found = sums(kernels, key, len(names), peaks)
    forward = _seconds(kernels, key, len(names), kernels.phase == Phase.FORWARD)
    backward = _seconds(kernels, key, len(names), np.isin(kernels.phase, BACKWARD))
    rest = _seconds(kernels, key, len(names), ~np.isin(kernels.phase, (Phase.FORWARD, *BACKWARD)))
    total = float(found.seconds.sum())
    return tuple(
        LayerTime(
            layer=kernels.strings[int(names[place])] if names[place] >= 0 else None,
            forward_seconds=float(forward[place]),
            backward_seconds=float(backward[place]),
            other_seconds=float(rest[place]),
            share=float(found.seconds[place] / total) if total else 0.0,
            flops=float(found.flops[place] / kernels.steps) if found.counted[place] else None,
            utilization=ratio(found.reached_flops[place], found.possible_flops[place]),
            calls=float(found.calls[place] / kernels.steps),
        )
        for place in np.argsort(-found.seconds, kind="stable").tolist()
    )


def _seconds(kernels: Kernels, key: Rows, size: int, chosen: Bools) -> Floats:
    """Return the seconds per step of the chosen kernels, by layer."""
    return np.bincount(key[chosen], kernels.own_ns[chosen], size) / 1e9 / kernels.steps
