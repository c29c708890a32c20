"""Kernels grouped by name and launch geometry, the groups that exact and sampled counters describe."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tbdprof.analysis.kernels.kernels import PRODUCTS, Kernels
from tbdprof.facts.arrays import Floats, Ints, Texts
from tbdprof.facts.records import Operation
from tbdprof.results.kernels import Key


@dataclass(frozen=True, slots=True)
class Launches:
    """One entry per name, grid and block; figures are per step."""

    keys: tuple[Key, ...]
    of_kernel: Ints  # the entry of each kernel
    calls: Floats
    seconds: Floats
    flops: Floats  # analytic, with element-wise arithmetic; nan if none of its kernels has a count
    counted_seconds: Floats  # seconds of the kernels that have a count
    precision: tuple[str, ...]  # of its first kernel with one, "" if not reported
    is_product: NDArray[np.bool_]  # matmuls and convolutions are most of its time
    of_product: NDArray[np.bool_]  # parts of such operators are most of its time: tensor cores can do its arithmetic
    is_transfer: NDArray[np.bool_]  # a copy or fill by the driver, not a kernel

    @property
    def share(self) -> Floats:
        """Return each entry's share of all time."""
        total = self.seconds.sum()
        return self.seconds / total if total else np.zeros(len(self.seconds))


def by_launch(kernels: Kernels) -> Launches:
    """Return kernels grouped by name, grid and block."""
    names = np.stack([kernels.name, kernels.grid, kernels.block], axis=1)
    triples, of_kernel = np.unique(names, axis=0, return_inverse=True)
    of_kernel, size = of_kernel.reshape(-1), len(triples)
    seconds, counted = kernels.own_ns / 1e9, np.isfinite(kernels.flops)

    def add(values: Floats, chosen: NDArray[np.bool_]) -> Floats:
        total: Floats = np.bincount(of_kernel[chosen], values[chosen], size) / kernels.steps
        return total

    everything = np.ones(len(kernels), bool)
    with_count = np.bincount(of_kernel[counted], minlength=size) > 0
    text, spent = kernels.strings.__getitem__, add(seconds, everything)
    return Launches(
        keys=tuple((text(int(name)), text(int(grid)), text(int(block))) for name, grid, block in triples),
        of_kernel=of_kernel,
        calls=add(np.ones(len(kernels)), everything),
        seconds=spent,
        flops=np.where(with_count, add(kernels.flops, counted), np.nan),
        counted_seconds=add(seconds, counted),
        precision=tuple(text(int(index)) for index in _first_known(kernels.precision, of_kernel, size)),
        is_product=add(seconds, np.isin(kernels.operation, PRODUCTS)) > spent / 2,
        of_product=add(seconds, kernels.of_product) > spent / 2,
        is_transfer=add(seconds, (kernels.operation == Operation.COPY) & (kernels.grid < 0)) > spent / 2,
    )


def _first_known(column: Texts, of: Ints, size: int) -> Texts:
    """Return the first known text of each entry, or -1 if there is none."""
    known, found = np.flatnonzero(column >= 0), np.full(size, -1, np.int32)
    entries, first = np.unique(of[known], return_index=True)
    found[entries] = column[known][first]
    return found
