"""Kernels grouped by name and phase: their time, FLOPs, utilization, and the nearer ceiling of the roofline.

The roofline is from S. Williams, A. Waterman, D. Patterson, "Roofline", CACM 52(4), 2009. The ridge is the number of
FLOPs per byte at which a device's two peaks meet: memory limits kernels below it, arithmetic limits kernels above it.
The bytes are those of all operands and results, each counted once; caches and repeated reads are not seen.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tbdprof.analysis.kernels.fused import within
from tbdprof.analysis.kernels.kernels import Kernels
from tbdprof.analysis.kernels.roofline import nearer_ceiling, ridge
from tbdprof.analysis.kernels.sums import Sums, ratio, sums
from tbdprof.facts.arrays import Rows, Texts, ranked
from tbdprof.facts.records import Operation, Peaks, Phase
from tbdprof.results.kernels import FusedKernel, Group


def groups(kernels: Kernels, peaks: Peaks | None, fused: Mapping[str, FusedKernel]) -> tuple[Group, ...]:
    """Return the kernels by name and phase, the longest first; `fused` are those that a compiler made, by name."""
    keys, key = ranked(kernels.name * len(Phase) + kernels.phase)
    found = sums(kernels, key, len(keys), peaks)
    columns = (
        kernels.operator,
        kernels.operation.astype(np.int32),
        kernels.layer,
        kernels.precision,
        kernels.of_product.astype(np.int32),
    )
    parts = list(zip(*(_by_time(kernels, key, column) for column in columns), strict=True))
    longest = np.argsort(-found.seconds, kind="stable").tolist()
    listed = (_group(kernels, found, peaks, place, int(keys[place]), parts[place]) for place in longest)
    return tuple(replace(group, fused=within(group.name, fused)) for group in listed)


def _group(
    kernels: Kernels, found: Sums, peaks: Peaks | None, place: int, key: int, parts: tuple[list[int], ...]
) -> Group:
    operators, operations, layers, precisions, products = parts
    text, steps, total = kernels.strings.__getitem__, kernels.steps, float(found.seconds.sum())
    precision, of_product = next((text(index) for index in precisions if index >= 0), None), bool(products[0])
    intensity = ratio(found.both_flops[place], found.both_bytes[place])
    return Group(
        name=text(key // len(Phase)),
        operator=text(operators[0]),
        operation=Operation(operations[0]).name.lower(),
        phase=Phase(key % len(Phase)).name.lower(),
        layers=tuple(text(index) for index in layers if index >= 0),
        calls=float(found.calls[place] / steps),
        seconds=float(found.seconds[place] / steps),
        share=float(found.seconds[place] / total) if total else 0.0,
        utilization=ratio(found.reached_flops[place], found.possible_flops[place]),
        flops=float(found.flops[place] / steps) if found.counted[place] else None,
        moved_bytes=float(found.moved_bytes[place] / steps) if found.moved[place] else None,
        precision=precision,
        of_product=of_product,
        intensity=intensity,
        flops_per_s=ratio(found.flops[place], found.counted_seconds[place]),
        bytes_per_s=ratio(found.moved_bytes[place], found.moved_seconds[place]),
        limit=nearer_ceiling(intensity, ridge(peaks, precision, product=of_product)),
    )


def _by_time(kernels: Kernels, key: Rows, column: Texts) -> list[list[int]]:
    """Return each key's values of a column, the value with the most own time first."""
    width = int(column.max(initial=-1)) + 2
    pairs, pair = ranked(key.astype(np.int64) * width + column + 1)
    order = np.lexsort((-np.bincount(pair, kernels.own_ns), pairs // width))
    values, of = pairs[order] % width - 1, pairs[order] // width
    return [each.tolist() for each in np.split(values, np.flatnonzero(np.diff(of)) + 1)]
