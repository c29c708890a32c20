"""Ratios with their intervals, the cost of an event, and what is judged by them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tbdprof.analysis.time.time_blocks import mean_interval

# The highest that the lower end of a ratio's interval may be. TensorFlow's windows are held against its process with
# the allocator that they need, which is told apart as `settings`.
BOUNDS: Mapping[str, Mapping[str, float]] = {
    "torch": {"clean": 1.005, "memory": 1.03, "kernels": 1.03},
    "mxnet": {"clean": 1.005, "memory": 1.03, "kernels": 1.03},
    "tensorflow": {"clean": 1.005, "memory": 1.05, "kernels": 1.05},
}
BARE, AGAIN, SETTINGS, WAITING = "bare", "bare again", "settings", "waiting"
WINDOWS = ("clean", "memory", "kernels")
WAITING_WINDOWS = ("memory", "kernels")  # those that wait for the device after each step


@dataclass(frozen=True, slots=True)
class Stretch:
    """Some steps that were timed together."""

    wall_s: float  # per step
    cpu_s: float  # of the process without its children, per step
    events: float | None = None  # per step, as counted in what was recorded; None: not counted


@dataclass(frozen=True, slots=True)
class Ratio:
    """The mean of the cycles' ratios, with its 95 % bootstrap interval (None for fewer than two cycles)."""

    mean: float
    interval: tuple[float, float] | None

    def is_within(self, bound: float) -> bool:
        """Return whether the interval does not lie above a bound as a whole."""
        return (self.mean if self.interval is None else self.interval[0]) <= bound


@dataclass(frozen=True, slots=True)
class Row:
    """What one way of watching costs, over the steps of the same cycles that were watched in another way, or not."""

    arm: str
    over: str
    wall: Ratio
    cpu: Ratio
    events: float | None  # per step
    us_per_event: float | None  # CPU time; None where events were not counted
    bound: float | None = None

    @property
    def is_within(self) -> bool:
        """Return whether the ratio of wall times keeps its bound, if there is one."""
        return self.bound is None or self.wall.is_within(self.bound)


Cycles = Mapping[str, Sequence[Stretch]]  # the stretches of each arm, one a cycle


def rows(framework: str, cycles: Cycles, *, is_judged: bool) -> list[Row]:
    """Return the rows of a framework at one size: windows, what else tbdprof sets, and the framework's own profilers.

    A peer is held against the bare steps of its own process, a window against those of a bare process; in TensorFlow
    a window is also held against the process with the settings that it needs, and judged by that. Where a framework
    runs ahead, its windows are also held against bare steps that wait for the device as they do.
    """
    found = [_row(arm, BARE, cycles) for arm in (AGAIN, SETTINGS, WAITING) if arm in cycles]
    judged_over = SETTINGS if framework == "tensorflow" else BARE
    for over in (BARE, SETTINGS):
        bounds = BOUNDS[framework] if is_judged and over == judged_over else {}
        found += [_row(arm, over, cycles, bounds.get(arm)) for arm in WINDOWS]
    if WAITING in cycles:
        found += [_row(arm, WAITING, cycles) for arm in WAITING_WINDOWS]
    peers = [arm for arm in cycles if arm not in (BARE, AGAIN, SETTINGS, WAITING, *WINDOWS)]
    return [*found, *(_row(arm, AGAIN, cycles) for arm in peers)]


def ratio(above: Sequence[float], below: Sequence[float]) -> Ratio:
    """Return the mean of the cycles' ratios."""
    ratios = np.array(above, float) / np.array(below, float)
    return Ratio(float(ratios.mean()), mean_interval(ratios))


def _row(arm: str, over: str, cycles: Cycles, bound: float | None = None) -> Row:
    watched, without = cycles[arm], cycles[over]
    wall = ratio([each.wall_s for each in watched], [each.wall_s for each in without])
    cpu = ratio([each.cpu_s for each in watched], [each.cpu_s for each in without])
    counts = [each.events for each in watched if each.events]
    events = float(np.mean(counts)) if counts else None
    more_s = np.mean([one.cpu_s - other.cpu_s for one, other in zip(watched, without, strict=True)])
    return Row(arm, over, wall, cpu, events, None if events is None else float(more_s) * 1e6 / events, bound)
