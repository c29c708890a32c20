"""Results about time: throughput, the time of a step by phase, why the device idles, and the verdict."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import NormalDist

from tbdprof.facts.records import Run

NORMAL_95 = NormalDist().inv_cdf(0.975)  # standard errors on either side of a 95 % interval
WIDE = 2.0  # an interval whose ends are further apart than this factor says nothing


@dataclass(frozen=True, slots=True)
class Rate:
    """Units of work per second and their 95 % interval."""

    per_s: float
    interval: tuple[float, float] | None

    @property
    def error(self) -> float | None:
        """Return the standard error that the interval stands for, None without an interval."""
        return None if self.interval is None else (self.interval[1] - self.interval[0]) / (2 * NORMAL_95)

    def times(self, factor: float) -> "Rate":
        """Return the rate in another unit, of which one of this unit has so many."""
        ends = self.interval
        return Rate(self.per_s * factor, None if ends is None else (ends[0] * factor, ends[1] * factor))


@dataclass(frozen=True, slots=True)
class OtherUnit:
    """The throughput in another unit than the run's own."""

    unit: str
    rate: Rate


@dataclass(frozen=True, slots=True)
class Throughput:
    """The rate over all clean windows, and of each; drifted when they disagree (None: fewer than two to compare)."""

    rate: Rate
    unit: str
    step_seconds: float
    windows: tuple[Rate, ...]
    drifted: bool | None
    others: tuple[OtherUnit, ...] = ()
    padding: Mapping[str, float] = field(default_factory=dict)  # share of what was computed, by unit
    per_step: Mapping[str, float] = field(default_factory=dict)  # of each unit that the loop does not count itself
    samples_from: str = ""  # where those of the samples are from

    def samples_per_unit(self, run: Run) -> float | None:
        """Return how many samples a unit is; None: something else was counted and no batch size is known."""
        if self.unit in ("samples", run.sample_unit):
            return 1.0
        for other in self.others:
            if other.unit == run.sample_unit:
                return other.rate.per_s / self.rate.per_s if self.rate.per_s else None
        return None

    def in_samples(self, run: Run) -> Rate | None:
        """Return the rate in samples; None as in `samples_per_unit`."""
        per_unit = self.samples_per_unit(run)
        return None if per_unit is None else self.rate.times(per_unit)


@dataclass(frozen=True, slots=True)
class Overhead:
    """A window's time per step over that of the clean windows beside it."""

    ratio: float
    interval: tuple[float, float] | None

    @property
    def is_wide(self) -> bool:
        """Return whether the interval is too wide to say anything."""
        return self.interval is not None and self.interval[1] > WIDE * self.interval[0]


@dataclass(frozen=True, slots=True)
class CpuUtilization:
    """CPU time over that of the cores (equation 3 of the TBD paper, Zhu et al., 2018, arXiv:1803.06905), as fractions.

    `process` is this process relative to the cores it may use, `others` all else relative to those it may run on. The
    ranks that train together with it are no others. `disturbed` says that the others took a notable part, more than
    the coarse clock of CPU time can feign.
    """

    process: float
    others: float
    cores: float  # affinity and quota
    affinity_cores: float  # without the quota
    disturbed: bool = False
    ranks: float | None = None  # as `others`: the other ranks on this machine, None: it trains alone


@dataclass(frozen=True, slots=True)
class Lengths:
    """The lengths of the longest sequences of steps, padding included, of one kind: source, target, frames."""

    name: str
    in_memory_window: tuple[float, ...]  # each length once, ascending
    shortest: float  # of all steps of the run
    longest: float


@dataclass(frozen=True, slots=True)
class PhaseTime:
    """A phase's part of a step; the phases of a step add up to it."""

    name: str
    seconds: float  # per step
    busy_seconds: float  # per step, of these with at least one kernel running
    share: float  # of the step


@dataclass(frozen=True, slots=True)
class Idle:
    """Why the device idles, as shares of the step; None: not known.

    `total` is the time in which no kernel runs; on a CPU, communication is no such kernel. `data_wait` is the part of
    it before the forward pass, without communication, and the time in the framework's own data loader, operators of the
    loader included. `synchronization` is the rest of `total` in which the host is in a call that waits for the device.
    `launching` is what is left without communication: Python, dispatch.
    """

    total: float
    data_wait: float
    launching: float
    synchronization: float | None
    copies: float | None  # between host and device while nothing else runs
    communication: float | None  # while nothing else runs


@dataclass(frozen=True, slots=True)
class Communication:
    """Communication with other processes or devices, per step."""

    seconds: float  # in which some runs
    exposed: float  # share of the step in which nothing else runs
    hidden: float  # share of the step in which it runs beside something else
    sent_bytes: int | None  # handed to collective operations, or received if that is more; None: not reported


@dataclass(frozen=True, slots=True)
class StepTime:
    """Where the time of a step goes."""

    step_seconds: float
    phases: tuple[PhaseTime, ...]
    idle: Idle
    covered: float  # kernels' own times over the wall time; above 1 where threads or streams work at once
    busy: float  # share of the wall time in which at least one kernel runs
    overlap: float  # kernels counted twice: own times beyond a thread's or stream's busy time, over the wall time
    kernels: float  # per step; on a CPU operators, without those that only do bookkeeping
    kernel_seconds: float | None  # of one on average, None: there is none
    communication: Communication | None = None  # None: none was seen


@dataclass(frozen=True, slots=True)
class Verdict:
    """What limits the run. `shares` are of the step, by what each instant of it went to; they add up to 1.

    `intervals` are their 95 % intervals over the watched steps, None of a single step. `candidates` are the shares that
    may be the largest, the largest first.
    """

    bound_by: str | None  # None: there are several candidates
    share: float  # the largest
    sentence: str
    advice: tuple[str, ...]
    shares: Mapping[str, float]
    intervals: Mapping[str, tuple[float, float] | None] = field(default_factory=dict)
    candidates: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Live:
    """What the records show that a run has written so far. None: not known yet."""

    window: str | None  # the newest
    is_open: bool  # it is recorded now, and has not ended
    place: int | None  # of the newest window among those that were planned, from 1
    planned_windows: int | None
    window_steps: int | None  # of the newest window; None while it is recorded as a whole, and written when it ends
    planned_steps: int | None  # of that window
    steps: int  # of all windows
    ended_windows: int
    latest_per_s: float | None  # the run's units per second in the newest block of steps that nothing watched
    throughput: Throughput | None  # of the clean windows so far
    cpu: CpuUtilization | None  # in the clean windows that have ended
