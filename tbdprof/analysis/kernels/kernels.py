"""Kernels as columns: what every analysis of kernels takes."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tbdprof.facts.arrays import Bools, Codes, Floats, Ints
from tbdprof.facts.arrays import Texts as Texts
from tbdprof.facts.records import Operation, Strings

PRODUCTS = (Operation.CONVOLUTION, Operation.MATMUL, Operation.ATTENTION, Operation.RECURRENT)


@dataclass(frozen=True, slots=True)
class Kernels:
    """One entry a kernel of the counted steps, ordered by start."""

    strings: Strings
    device: str
    name: Texts  # text index: the kernel's, on the CPU the operator's
    operator: Texts  # text index of the outermost operator around it, itself included; -1: none
    layer: Texts  # text index, -1: in no layer
    phase: Codes
    operation: Codes
    grid: Texts  # text index of the launch's geometry, -1: not told
    block: Texts
    thread_or_stream: Ints
    start_ns: Ints
    end_ns: Ints
    own_ns: Ints  # on the CPU without the operators inside it; on a GPU end - start
    step: NDArray[np.int32]  # place among the counted steps
    crosses: Bools  # copies from the device or to it, communication's left out
    flops: Floats  # its share of its work's FLOPs, per-element counts and recomputation included; nan: no count
    model_flops: Floats  # its share of forward's and backward's products, without what is recomputed; else 0
    moved_bytes: Floats  # nan: not told
    precision: Texts  # text index, -1: not told
    of_product: Bools  # its work is a product, which tensor cores can do
    units: float  # of work, in the counted steps
    other_units: Mapping[str, float]  # by name
    step_start_ns: Ints
    step_ns: Ints
    data_start_ns: Ints  # when the framework's own data loader was asked, and when it answered
    data_end_ns: Ints
    wait_start_ns: Ints  # of the host's calls that wait for the device; none: not told
    wait_end_ns: Ints

    def __len__(self) -> int:
        """Return how many kernels there are."""
        return len(self.start_ns)

    @property
    def steps(self) -> int:
        """Return how many steps count."""
        return len(self.step_ns)

    @property
    def has_products(self) -> Bools:
        """Tell which kernels compute products that were counted."""
        counted: Bools = np.isin(self.operation, PRODUCTS) & np.isfinite(self.flops)
        return counted

    def share(self, chosen: Bools) -> float:
        """Return the chosen kernels' share of all kernels' own time, 0 where there is no time."""
        total = int(self.own_ns.sum())
        return float(self.own_ns[chosen].sum() / total) if total else 0.0
