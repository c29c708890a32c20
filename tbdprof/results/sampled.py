"""Results of hardware counters that were sampled beside a kernels window."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tbdprof.facts.counters import PM_BUSY, PM_CLOCK, PM_DRAM, PM_FP32, PM_SM_ACTIVE, PM_TENSOR, PM_WARPS
from tbdprof.results.kernels import Key

# The means over the whole window by their names in reports, and the counter each is of.
ELAPSED = {"device_busy": PM_BUSY, "warps": PM_WARPS, "sm_clock_hz": PM_CLOCK}
WHILE_BUSY = {"fp32_pipe": PM_FP32, "tensor_pipe": PM_TENSOR, "dram": PM_DRAM, "sm_active": PM_SM_ACTIVE}
LITE_PART = 0.5  # of the FP32 pipe's width, on every chip that has counters of its halves (GA102 and later)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A fraction of the time, its standard error by the fit, and how far samples are from the fit there."""

    value: float
    error: float
    residual: float  # root of the mean square over the samples in which the kernels have a part, by that part


@dataclass(frozen=True, slots=True)
class Use:
    """How much kernels used of the device while they ran; None: not known."""

    fp32: Estimate | None = None  # of the whole pipe, integer arithmetic included: an upper bound
    fp32_low: Estimate | None = None
    tensor: Estimate | None = None
    dram: Estimate | None = None
    sm_active: Estimate | None = None


@dataclass(frozen=True, slots=True)
class SampledKernels:
    """The kernels of one name, grid and block."""

    key: Key
    calls: float  # per step
    seconds: float  # per step
    share: float  # of all kernels' time
    use: Use
    samples: int  # in which one of them has a part
    covered: float  # of their time that is sampled
    reason: str | None  # why nothing is known of their use


@dataclass(frozen=True, slots=True)
class NamedUse:
    """The use of the kernels of one name and phase: means over the time of those that have a value."""

    use: Use
    samples: int
    covered: float  # share of their time that those are


@dataclass(frozen=True, slots=True)
class Offset:
    """What is added to the times of samples, and the counter that showed it; None: no counter did, and it is 0."""

    shift_ns: int
    found_by: str | None


@dataclass(frozen=True, slots=True)
class Sampled:
    """What was sampled; without kernels only the means of the whole window, with the reason."""

    samples: int
    interval_ns: int
    lost: int | None
    residual_ns: float | None  # of the clocks' conversion, as the sampler reports it
    elapsed: Mapping[str, float]  # means by counter
    while_busy: Mapping[str, float]  # over the time in which kernels ran, or else the device says it was busy
    reason: str | None = None
    busy: float | None = None  # of the sampled time, by kernels
    offset: Offset | None = None
    residuals: Mapping[str, float] = field(default_factory=dict)  # of the fit, by counter
    kernels: tuple[SampledKernels, ...] = ()  # the longest first
    by_name: Mapping[tuple[str, str], NamedUse] = field(default_factory=dict)  # by name and phase
    violations: tuple[str, ...] = ()
