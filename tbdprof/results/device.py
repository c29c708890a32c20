"""Results about the device that its driver reports: load, clocks, power and energy."""

from collections.abc import Mapping
from dataclasses import dataclass

BUSY_APART = 0.03  # figures of busy that differ by more than this deserve a line
ENERGY_APART = 0.05  # counter and integrated power that differ by more than this deserve a mark
COMPARABLE_S = 10.0  # of kernels windows: the driver's own samples are of up to a second, unaligned with them


@dataclass(frozen=True, slots=True)
class Gpm:
    """Figures of the hardware's counters (GPM) over elapsed time; None: not reported."""

    busy: float | None  # any compute or graphics work
    sm_active: float | None  # multiprocessors that were busy
    sm_occupancy: float | None  # warps of those possible
    fp32: float | None  # time in FP32 math that is not on tensor cores
    tensor: float | None
    dram: float | None  # bandwidth of that possible

    @property
    def fp32_while_busy(self) -> float | None:
        """Return the FP32 figure over the time in which anything ran."""
        return None if self.fp32 is None or not self.busy else self.fp32 / self.busy


@dataclass(frozen=True, slots=True)
class Clock:
    """The clock of the multiprocessors over some time."""

    mean_hz: float
    least_hz: float
    most_hz: float


@dataclass(frozen=True, slots=True)
class Reasons:
    """Why the clocks were not higher, as shares of the samples."""

    by_reason: Mapping[str, float]
    throttled: float  # samples with a reason that nobody chose


@dataclass(frozen=True, slots=True)
class BusyCompared:
    """The busy fraction of the counted steps of the kernels windows, by each instrument; None: not reported."""

    kernels: float
    driver: float | None
    gpm: float | None
    seconds: float  # of the counted steps

    @property
    def is_comparable(self) -> bool:
        """Return whether the windows are long enough, compared with the instruments' samples."""
        return self.seconds >= COMPARABLE_S

    @property
    def driver_difference(self) -> float | None:
        """Return the driver's figure minus that of the kernels' times."""
        return None if self.driver is None else self.driver - self.kernels

    @property
    def gpm_difference(self) -> float | None:
        """Return GPM's figure minus that of the kernels' times."""
        return None if self.gpm is None else self.gpm - self.kernels

    @property
    def is_apart(self) -> bool:
        """Return whether one of them is comparable and differs from the kernels' times by more than 3 points."""
        differences = (self.driver_difference, self.gpm_difference)
        return self.is_comparable and any(abs(each) > BUSY_APART for each in differences if each is not None)


@dataclass(frozen=True, slots=True)
class Device:
    """The driver's figures by the name of the window: clocks of every window, the rest of clean and kernels windows."""

    driver_busy: Mapping[str, float | None]
    driver_period_s: float | None  # of the driver's own samples; None: it has none
    gpm: Mapping[str, Gpm | None]
    sm_clock: Mapping[str, Clock | None]
    most_sm_clock_hz: float | None  # the highest the card can
    memory_clock_hz: Mapping[str, float | None]
    reasons: Mapping[str, Reasons | None]
    most_celsius: Mapping[str, float | None]
    busy: BusyCompared | None  # None: no kernels were reported

    def of_most(self, window: str) -> float | None:
        """Return a window's mean clock as a share of the highest, or None if one of them is not known."""
        clock = self.sm_clock.get(window)
        return None if clock is None or not self.most_sm_clock_hz else clock.mean_hz / self.most_sm_clock_hz


THE_GPU, THE_MODULE = "the GPU", "the whole module, its CPU and memory included"


@dataclass(frozen=True, slots=True)
class WindowEnergy:
    """A window's energy by the counter and by power; None: its samples do not give it."""

    seconds: float
    units: float  # of the whole steps in it
    counter_joules: float | None
    power_joules: float | None  # power integrated over time

    @property
    def ratio(self) -> float | None:
        """Return the counter's energy over that of the integrated power."""
        if self.counter_joules is None or not self.power_joules:
            return None
        return self.counter_joules / self.power_joules


@dataclass(frozen=True, slots=True)
class Power:
    """The samples of power in the clean windows."""

    mean_watts: float
    least_watts: float
    most_watts: float
    kind: str  # of what the samples are
    period_s: float | None  # between two, None: there is one


@dataclass(frozen=True, slots=True)
class Energy:
    """The energy of the clean windows."""

    windows: tuple[WindowEnergy, ...]  # those long enough
    source: str | None  # of `joules_per_unit`: "counter" or "power"
    covers: str | None  # what that is the energy of, None: there is none
    joules_per_unit: float | None
    interval: tuple[float, float] | None  # 95 %, from the windows
    watts: float | None  # the same energy over the time it took
    power: Power | None
    joules_per_unit_of_average_power: float | None  # the metric of Wang et al., arXiv:1909.06842

    @property
    def is_apart(self) -> bool:
        """Return whether the counter and the integrated power differ by more than 5 %."""
        return self.ratio is not None and abs(self.ratio - 1) > ENERGY_APART

    @property
    def ratio(self) -> float | None:
        """Return the counter's energy over that of the integrated power, over the windows that have both."""
        both = [
            (each.counter_joules, each.power_joules)
            for each in self.windows
            if each.counter_joules is not None and each.power_joules
        ]
        return sum(counter for counter, _ in both) / sum(power for _, power in both) if both else None


@dataclass(frozen=True, slots=True)
class Traced:
    """How completely kernels were reported in all kernels windows together."""

    lost: int  # records that the instrument reports or shows to be lost
    residual_ns: float  # the largest
