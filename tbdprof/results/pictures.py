"""What the page draws and no other report shows: series over time, worked out only when a page is asked for."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tbdprof.facts.arrays import Bools, Floats, Ints
from tbdprof.facts.records import Role
from tbdprof.results.memory import Holding


@dataclass(frozen=True, slots=True)
class Band:
    """A stretch of time with a name: a step or a phase."""

    name: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """Blocks of memory, and from which to which of the kept instants each is live, both included."""

    first: Ints
    last: Ints
    holdings: tuple[Holding, ...]


@dataclass(frozen=True, slots=True)
class MemoryOverTime:
    """The memory of the window with the highest peak, at instants that are kept: after some of its events.

    At each instant the roles and the rounding add up to the total. The listed blocks, those that are not listed, what
    no block explains and the rounding add up to it, too.
    """

    window: int
    events: int  # of the steps that count
    time_ns: Ints
    roles: Mapping[Role, Ints]  # only those that ever have a byte
    rounding: Ints
    peak: int  # which of the kept instants is the peak
    listed: Lifetimes
    blocks: int  # how many are live at any kept instant, the listed ones among them
    unlisted_bytes: Mapping[Role, Ints]
    unlisted_blocks: Ints
    unreported_bytes: Mapping[Role, Ints]  # of the framework's total, without a reported block
    steps: tuple[Band, ...]
    phases: tuple[Band, ...]

    @property
    def total(self) -> Ints:
        """Return the bytes in use at each kept instant."""
        return np.sum([*self.roles.values(), self.rounding], axis=0)  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Bar:
    """What ran on a lane from one time to another; `count` is above 1 where short ones are drawn as one."""

    name: str
    layer: str | None
    phase: str
    start_ns: int
    end_ns: int
    count: int = 1
    busy_ns: int = 0  # of those drawn as one


@dataclass(frozen=True, slots=True)
class Lane:
    """What one thread of the host or one stream of a device did in a step."""

    name: str
    bars: tuple[Bar, ...]
    total: int  # how many operators or kernels it ran


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of the step in one phase, busy or idle for one reason."""

    phase: str
    state: str  # "busy", or why the device idles
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class OneStep:
    """The counted step of the kernels windows whose time is nearest to their median."""

    index: int  # of the step in the run
    start_ns: int
    end_ns: int
    steps: int  # of how many it was chosen
    pieces: tuple[Piece, ...]
    sums: Mapping[tuple[str, str], int]  # nanoseconds by state and phase; they add up to the step
    lanes: tuple[Lane, ...]
    omitted: int = 0  # pieces that are too short to be drawn
    slices: tuple[Piece, ...] = ()  # equal parts, each by what takes most of it; only if pieces are omitted


@dataclass(frozen=True, slots=True)
class StepTimes:
    """The time per step of each block of steps, one entry per block."""

    window: Ints  # ordinal
    names: tuple[str, ...]  # of each block's window
    first_step: Ints
    steps: Ints
    seconds: Floats  # per step
    is_outlier: Bools


@dataclass(frozen=True, slots=True)
class Series:
    """A counter of a device over time."""

    counter: str
    device: str
    samples: int  # how many were recorded
    time_ns: Ints
    values: Floats


@dataclass(frozen=True, slots=True)
class Pictures:
    """All series of a page; a missing one is None, and `missing` has the reason by the picture's name."""

    memory: MemoryOverTime | None
    step: OneStep | None
    step_times: StepTimes | None
    device: tuple[Series, ...]
    windows: tuple[Band, ...]
    missing: Mapping[str, str] = field(default_factory=dict)
