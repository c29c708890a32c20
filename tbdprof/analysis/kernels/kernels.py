"""Kernels as columns: the input of every analysis of kernels."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tbdprof.facts.arrays import Bools, Codes, Floats, Ints
from tbdprof.facts.arrays import Texts as Texts
from tbdprof.facts.records import Operation, Phase, Strings

PRODUCTS = (Operation.CONVOLUTION, Operation.MATMUL, Operation.ATTENTION, Operation.RECURRENT)


@dataclass(frozen=True, slots=True)
class Kernels:
    """One entry per kernel of the counted steps, ordered by start."""

    strings: Strings
    device: str
    name: Texts  # text index of the kernel's name, on the CPU of the operator's
    operator: Texts  # text index of the outermost operator around it, itself included; -1 if none
    layer: Texts  # text index, -1 if in no layer
    phase: Codes
    operation: Codes
    grid: Texts  # text index of the launch's geometry, -1 if not reported
    block: Texts
    thread_or_stream: Ints
    start_ns: Ints
    end_ns: Ints
    own_ns: Ints  # on the CPU minus the operators inside it; on a GPU end - start
    step: NDArray[np.int32]  # index among the counted steps
    crosses: Bools  # copies that enter or leave the device, except communication
    flops: Floats  # share of its `Work`'s FLOPs, with element-wise arithmetic and recomputation; nan if no count
    product_flops: Floats  # share of the FLOPs of matmuls and convolutions, in whatever phase
    of_model: Bools  # its phase is the model's: forward and backward without recomputation
    moved_bytes: Floats  # nan if not reported
    precision: Texts  # text index, -1 if not reported
    of_product: Bools  # its `Work` is a matmul or convolution, which tensor cores can compute
    units: float  # of work, in the counted steps
    other_units: Mapping[str, float]  # by name
    step_start_ns: Ints
    step_ns: Ints
    data_start_ns: Ints  # when the framework's data loader was asked for a batch, and when it answered
    data_end_ns: Ints
    wait_start_ns: Ints  # the host's calls that wait for the device; empty if not reported
    wait_end_ns: Ints

    def __len__(self) -> int:
        """Return how many kernels there are."""
        return len(self.start_ns)

    @property
    def steps(self) -> int:
        """Return the number of counted steps."""
        return len(self.step_ns)

    @property
    def model_flops(self) -> Floats:
        """Return the shares of forward's and backward's matmuls and convolutions without recomputation; otherwise 0."""
        return np.where(self.of_model, self.product_flops, 0.0)

    @property
    def update_flops(self) -> Floats:
        """Return the shares of the update's matmuls and convolutions; otherwise 0."""
        return np.where(self.phase == Phase.UPDATE, self.product_flops, 0.0)

    @property
    def has_products(self) -> Bools:
        """Return which kernels compute matmuls or convolutions with a FLOP count."""
        counted: Bools = np.isin(self.operation, PRODUCTS) & np.isfinite(self.flops)
        return counted

    def share(self, chosen: Bools) -> float:
        """Return the chosen kernels' share of all kernels' own time, or 0 if there is no time."""
        total = int(self.own_ns.sum())
        return float(self.own_ns[chosen].sum() / total) if total else 0.0
