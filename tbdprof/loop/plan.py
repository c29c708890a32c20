"""How long each part of a run lasts, and who is told how far it is."""

import math
from dataclasses import dataclass
from typing import Protocol

from tbdprof.facts.windows import CLEAN, KERNELS, MEMORY, SAMPLED
from tbdprof.loop.steady import BLOCKS

WINDOWS = (CLEAN, MEMORY, CLEAN, KERNELS, CLEAN)
WITH_SAMPLED = (*WINDOWS, SAMPLED, CLEAN)
MINIMUM_WARMUP = 3  # steps
BLOCKS_PER_WINDOW = 5
LEAST_BLOCKS = 3  # of a window whose data has a period: with the other windows' enough for an interval
NO_STEPS = 0  # of a phase that is one piece of work: its name is all there is to tell


@dataclass(frozen=True, slots=True)
class Plan:
    """How long each part of a run lasts."""

    warmup: int | None = None  # steps; None: until settled
    max_warmup: int | None = None  # steps, exactly; None: about `patience` steps
    patience: int = 22  # steps, but at least twice the blocks that are judged
    steps: int = 10  # of a clean window
    clean_s: float = 0.0  # at least this long, too
    memory_steps: int = 4  # the first one settles
    kernel_steps: int = 4  # the first block settles
    kernel_block_steps: int = 1
    windows: tuple[str, ...] = WINDOWS
    repeat: int = 1
    period: int = 1  # steps after which the data repeats: what is compared holds whole periods
    warmup_block_s: float = 0.01  # a block of very short steps goes on so long, but not beyond its share of patience

    @property
    def warmup_block_steps(self) -> int:
        """Return how many steps a block of the warm-up has at most."""
        return self._whole_periods(self.patience // (2 * BLOCKS))

    @property
    def block_steps(self) -> int:
        """Return how many steps of a clean window lie between two synchronizations."""
        return self._whole_periods(self.steps // BLOCKS_PER_WINDOW)

    def watched(self, window: str) -> tuple[int, int]:
        """Return how many steps a window that is no clean one has, and how many each of its blocks.

        Its first block settles; after it come whole periods.
        """
        if window == MEMORY:
            return 1 + self._whole_periods(self.memory_steps - 1), 1
        block = (
            self.kernel_block_steps if self.kernel_block_steps == 1 else self._whole_periods(self.kernel_block_steps)
        )
        return block + self._whole_periods(self.kernel_steps - block), block

    def _whole_periods(self, steps: int) -> int:
        """Return the least number of steps, not below this one, that is whole periods."""
        return self.period * max(1, math.ceil(steps / self.period))


@dataclass(frozen=True, slots=True)
class Schedule:
    """How long a run shall be, as far as its user says."""

    steps: int | None = None  # of each clean window; None: by the device
    warmup: int | None = None  # steps; None: until settled
    max_warmup: int | None = None  # steps after which that gives up; None: by the device
    repeat: int = 1  # times that the windows are recorded


def plan_for(
    device: str,
    schedule: Schedule = Schedule(),
    *,
    windows: tuple[str, ...] = WINDOWS,
    period: int = 1,
    watched_steps: int = 1,
) -> Plan:
    """Return the plan for a device type: a GPU's clean windows have 50 steps and last 10 s, a CPU's 10 steps.

    A memory or kernels window has at least `watched_steps` after its first block, which settles. Where the data has a
    period, a block is at least one of it, and a clean window at least three blocks.
    """
    watched = 1 + watched_steps
    least = LEAST_BLOCKS * period if period > 1 else 0
    if device.startswith("cuda"):
        return Plan(
            schedule.warmup,
            schedule.max_warmup,
            patience=200,
            steps=schedule.steps or max(50, least),
            clean_s=0.0 if schedule.steps else 10.0,
            memory_steps=max(4, watched),
            kernel_steps=max(20, 5 + watched_steps),
            kernel_block_steps=5,
            windows=windows,
            repeat=schedule.repeat,
            period=period,
        )
    return Plan(
        schedule.warmup,
        schedule.max_warmup,
        steps=schedule.steps or max(10, least),
        memory_steps=max(4, watched),
        kernel_steps=max(4, watched),
        windows=windows,
        repeat=schedule.repeat,
        period=period,
    )


class Progress(Protocol):
    """Is told how far a run is."""

    def __call__(self, phase: str, step: int, of: int | None) -> None:
        """Take the phase, the steps done in it, and how many it will have (None: not known)."""


def silent(phase: str, step: int, of: int | None) -> None:
    """Report no progress."""
