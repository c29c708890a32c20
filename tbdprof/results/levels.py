"""Utilization at several levels of measurement, side by side."""

from dataclasses import dataclass

from tbdprof.results.kernels import Key


@dataclass(frozen=True, slots=True)
class Pipes:
    """Activity of the pipes as fractions of the time in which kernels ran; None: not reported."""

    fp32: float | None = None
    tensor: float | None = None
    fp32_low: float | None = None  # of the half that takes FP32 alone


@dataclass(frozen=True, slots=True)
class PipeUse:
    """Activity of a pipe while kernels ran, and the level that measured it."""

    value: float
    level: str  # "sampled", or "device": the driver's own figure


@dataclass(frozen=True, slots=True)
class KernelLevels:
    """The kernels of one name, grid and block at each level."""

    key: Key
    seconds: float  # per step
    share: float  # of all kernels' time
    is_product: bool
    analytic_flop: float | None  # FLOPs over peak
    counted_flop: float | None
    sampled: Pipes
    counted: Pipes

    @property
    def flop_difference(self) -> float | None:
        """Return analytic minus counted FLOPs over peak; None unless it is a matmul or convolution."""
        return _difference(self.analytic_flop, self.counted_flop) if self.is_product else None

    @property
    def fp32_difference(self) -> float | None:
        """Return sampled minus counted activity of the FP32 pipe."""
        return _difference(self.sampled.fp32, self.counted.fp32)

    @property
    def tensor_difference(self) -> float | None:
        """Return sampled minus counted activity of the tensor pipe."""
        return _difference(self.sampled.tensor, self.counted.tensor)


@dataclass(frozen=True, slots=True)
class Agreement:
    """How many of the longest kernels known at two levels have both figures within a bound."""

    what: str
    within: int
    of: int
    bound: float
    worst: float  # the largest difference, by size


@dataclass(frozen=True, slots=True)
class Levels:
    """The longest kernels at each level, and means over the time of all kernels that a level knows."""

    rows: tuple[KernelLevels, ...]
    agreements: tuple[Agreement, ...]
    analytic_flop: float | None  # of the model's matmuls and convolutions over active time
    counted_flop: float | None  # of all FLOPs over active time
    sampled: Pipes
    counted: Pipes
    device: Pipes  # the driver's own, divided by the time it was busy


def _difference(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one - other
