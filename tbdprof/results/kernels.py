"""Results about kernels: what ran, and how well it used the device."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tbdprof.facts.records import Peaks

ANALYTIC = "analytic"  # the level of figures worked out from the operators' definitions


@dataclass(frozen=True, slots=True)
class AtClock:
    """The same FLOPs, relative to the peak at the clock that was measured."""

    value: float
    clock_hz: float  # the mean over the kernels windows
    peak_clock_hz: float  # the one the peak holds for


@dataclass(frozen=True, slots=True)
class Flop:
    """FLOPs relative to what the device could have done while it was active."""

    value: float | None
    level: str  # "analytic": from the operators' definitions
    precision: str
    coverage: float  # share of the kernels' time in matmuls and convolutions that have a FLOP count
    peak_flops_per_s: float
    peak_source: str
    bound: float | None  # the speed-up a value of 1 would bring, None: more than arithmetic limits the busy time
    at_clock: AtClock | None = None  # None: the peak was measured, or the clock was not
    at_most: bool = False  # the peak was measured while other processes had cores, so that it may be higher


@dataclass(frozen=True, slots=True)
class Utilization:
    """How busy the device is, and how well it is used while it is."""

    busy: float | None  # busy time a step in the kernels windows over the time of a step in the clean ones
    busy_in_window: float
    flop: Flop | None  # in the precision of most of the run's matmuls and convolutions
    fp32: Flop | None  # None unless that is FP32
    flops_per_sample: float | None  # of the model's matmuls and convolutions, forward and backward
    flops_per_step: float | None  # None: no product was counted, for the reason given for `flops_per_sample`
    precision: str | None = None  # of most of the model's matmuls and convolutions; without any, the run's
    flops_per_unit: Mapping[str, float] = field(default_factory=dict)  # by each unit that was counted
    update_flops_per_step: float = 0.0  # of the update's matmuls and convolutions, which are no part of the model's


@dataclass(frozen=True, slots=True)
class FusedKernel:
    """A kernel that a compiler made of several operators; None: the compiler's code does not say."""

    name: str
    operators: tuple[str, ...] | None
    nodes: tuple[str, ...] | None  # of the graph that was compiled


@dataclass(frozen=True, slots=True)
class Group:
    """The kernels of one name in one phase; what is not known of any of them is None.

    If only some of the kernels have a FLOP count, utilization and rates are of those.
    """

    name: str
    operator: str  # the outermost operator around most of their time, "" for none
    operation: str
    phase: str
    layers: tuple[str, ...]  # longest first, without what is in no layer
    calls: float  # per step
    seconds: float  # per step, own time
    share: float  # of all kernels' own time
    utilization: float | None
    flops: float | None  # per step, per-element counts included
    moved_bytes: float | None  # per step
    precision: str | None
    of_product: bool  # most of its time is in matmuls and convolutions, which tensor cores can do
    intensity: float | None  # FLOP a byte
    flops_per_s: float | None
    bytes_per_s: float | None
    limit: str | None  # "compute" or "memory"
    fused: tuple[FusedKernel, ...] = ()  # what a compiler made: this kernel, or those in this graph of a CPU's


@dataclass(frozen=True, slots=True)
class LayerTime:
    """The time of a layer; its name is None for what runs in no layer, and "" for the model itself."""

    layer: str | None
    forward_seconds: float  # per step, kernels' own times
    backward_seconds: float  # recomputation among it
    other_seconds: float
    share: float  # of all own time
    flops: float | None  # per step, per-element counts included; None: nothing in it has a count
    utilization: float | None  # of the kernels that have a count
    calls: float  # kernels per step

    @property
    def seconds(self) -> float:
        """Return the sum of the layer's own times, per step."""
        return self.forward_seconds + self.backward_seconds + self.other_seconds


@dataclass(frozen=True, slots=True)
class LowUtilization:
    """Kernels below the average, the longest first, and apart those without a count."""

    average: float  # over the time of the kernels that have a count
    covered: float  # share of all kernels' own time they have
    rows: tuple[Group, ...]
    uncounted: tuple[Group, ...]  # the longest first: they may be among the worst


Key = tuple[str, str, str]  # name, grid and block as they were reported


@dataclass(frozen=True, slots=True)
class CountedKernels:
    """The kernels of one name, grid and block; FLOPs and bytes are per step, None if they were not reported."""

    key: Key
    calls: float
    seconds: float  # in the kernels windows
    share: float  # of all kernels' time
    launches: int  # counted ones that are theirs
    fp32_flops: float | None
    tensor_flops: Mapping[str, float]  # by the type of the operands
    dram_bytes: float | None
    fp32_pipe: float | None
    tensor_pipe: float | None
    fp32_utilization: float | None
    tensor_utilization: float | None
    flop_utilization: float | None  # both; None where tensor cores worked in a type that was not counted


@dataclass(frozen=True, slots=True)
class Counted:
    """The counted step: its totals, and what is known of each kernel, the longest first."""

    launches: int
    fp32_flops: float | None
    tensor_flops: Mapping[str, float]
    dram_bytes: float | None
    analytic_flops: (
        float | None
    )  # per step of the kernels windows, per-element counts included; None: no kernel has any
    fp32_utilization: float | None  # over active time
    tensor_utilization: float | None
    flop_utilization: float | None
    kernels: tuple[CountedKernels, ...]
    unmatched: tuple[Key, ...]  # kernels of the run that were not counted, the longest first
    unmatched_share: float  # of all kernels' time
    left_over: int  # counted launches that match no kernel of the run
    violations: tuple[str, ...]  # what cannot be


def headroom(group: Group, peaks: Peaks | None) -> float | None:
    """Return how many times faster kernels can become before the nearer ceiling; None: not known."""
    if peaks is None or group.limit is None:
        return None
    if group.limit == "memory":
        ceiling, reached = peaks.bytes_per_s, group.bytes_per_s
    else:
        ceiling, reached = peak_of(group, peaks), group.flops_per_s
    return ceiling / reached if ceiling and reached else None


def peak_of(group: Group, peaks: Peaks | None) -> float | None:
    """Return the peak, in FLOP/s, that the kernels' utilization is relative to; None: not known."""
    return None if peaks is None or group.precision is None else peaks.of(group.precision, product=group.of_product)
