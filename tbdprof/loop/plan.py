"""How long each part of a run lasts, and the interface for its progress."""

import math
from dataclasses import dataclass, replace
from typing import Protocol

from tbdprof.facts.windows import CLEAN, KERNELS, MEMORY, SAMPLED, WARMUP
from tbdprof.loop.steady import BLOCKS

WINDOWS = (CLEAN, MEMORY, CLEAN, KERNELS, CLEAN)
WITH_SAMPLED = (*WINDOWS, SAMPLED, CLEAN)
MINIMUM_WARMUP = 3  # steps
BLOCKS_PER_WINDOW = 5
LEAST_BLOCKS = 3  # per window if the data has a period; with the other windows' blocks enough for an interval
LEAST_STEPS = 4  # of a clean window whose steps take long: the three of a plan then have more than 10
WARMUP_S = 30.0  # after which the warm-up of a CPU gives up
WINDOW_S = 10.0  # of a clean window of a CPU, at most, unless its least number of steps takes longer
BLOCK_S = 0.05  # of a clean block, at least: what is done between two blocks takes about 1 ms
MOST_STEPS = {"cpu": 50, "cuda": 1000}  # of a clean window whose steps are short, by type of device
EARLY = (MEMORY, CLEAN, KERNELS)  # memory first: of a loop of five steps, it alone is as good as later
EARLY_STEPS = 3  # of each early window
NO_STEPS = 0  # number of steps of a phase without steps; only its name is reported


@dataclass(frozen=True, slots=True)
class Plan:
    """How long each part of a run lasts."""

    warmup: int | None = None  # steps; None: until settled
    max_warmup: int | None = None  # steps, exactly; None: about `patience` steps
    patience: int = 22  # steps, but at least twice the number of judged blocks
    steps: int = 10  # per clean window
    clean_s: float = 0.0  # a clean window also lasts at least this long
    warmup_s: float = math.inf  # the warm-up gives up after this time, too, once enough blocks can be judged
    window_s: float = math.inf  # a clean window that would last longer has fewer steps (`fitted`)
    most_steps: int = 0  # a clean window whose blocks would be short has more steps, up to so many (`fitted`)
    memory_steps: int = 4  # the first one is discarded as warm-up
    kernel_steps: int = 4  # the first block is discarded as warm-up
    kernel_block_steps: int = 1
    windows: tuple[str, ...] = WINDOWS
    repeat: int = 1
    period: int = 1  # steps after which the data repeats; figures are compared over whole periods
    warmup_block_s: float = 0.01  # blocks of very short steps last this long, within their share of `patience`
    early: "Plan | None" = None  # short windows before the warm-up, in case the loop ends soon
    is_together: bool = False  # other processes take the same steps, and each waits for the others

    @property
    def warmup_block_steps(self) -> int:
        """Return the largest number of steps in a block of the warm-up."""
        return self._whole_periods(self.patience // (2 * BLOCKS))

    @property
    def block_steps(self) -> int:
        """Return the number of steps between two synchronizations in a clean window."""
        return self._whole_periods(self.steps // BLOCKS_PER_WINDOW)

    def fitted(self, step_s: float) -> "Plan":
        """Return the plan for steps that take so long: clean windows have fewer long steps, and more short ones."""
        if self.steps * step_s > self.window_s:
            least = max(LEAST_STEPS, LEAST_BLOCKS * self.period if self.period > 1 else 0)
            return replace(self, steps=min(self.steps, max(least, int(self.window_s / step_s))))
        blocks_of_time = BLOCKS_PER_WINDOW * math.ceil(BLOCK_S / step_s) if step_s else self.most_steps
        return replace(self, steps=max(self.steps, min(self.most_steps, blocks_of_time)))

    def watched(self, window: str) -> tuple[int, int]:
        """Return (steps, steps per block) of a memory, kernels or sampled window.

        The first block is discarded as warm-up; whole periods follow it.
        """
        if window == MEMORY:
            return 1 + self._whole_periods(self.memory_steps - 1), 1
        block = (
            self.kernel_block_steps if self.kernel_block_steps == 1 else self._whole_periods(self.kernel_block_steps)
        )
        return block + self._whole_periods(self.kernel_steps - block), block

    @property
    def outline(self) -> tuple[tuple[str, int | None], ...]:
        """Return the windows in order, the early ones first, each with its steps, or None if these are still open."""
        steps = {name: self.watched(name)[0] for name in self.windows} | {CLEAN: self.steps}
        own = ((WARMUP, self.warmup), *((name, steps[name]) for name in self.windows * self.repeat))
        return own if self.early is None else (*self.early.outline, *own)

    def _whole_periods(self, steps: int) -> int:
        """Return `steps` rounded up to whole periods."""
        return self.period * max(1, math.ceil(steps / self.period))


@dataclass(frozen=True, slots=True)
class Schedule:
    """The length of a run as its user gave it."""

    steps: int | None = None  # of each clean window; None: chosen by device
    warmup: int | None = None  # steps; None: until settled
    max_warmup: int | None = None  # steps after which the warm-up gives up; None: chosen by device
    repeat: int = 1  # how many times the windows are recorded


def plan_for(
    device: str,
    schedule: Schedule = Schedule(),
    *,
    windows: tuple[str, ...] = WINDOWS,
    period: int = 1,
    watched_steps: int = 1,
    early_after: int | None = None,
) -> Plan:
    """Return the plan for a device type: a GPU's clean windows have 50 steps and last 10 s, a CPU's 10 steps.

    Without a given number of steps, a clean window has more of steps that take milliseconds, so that its blocks last
    long enough. On a CPU, steps may take seconds: then a clean window has fewer, at least 4, and the warm-up gives up
    earlier.

    A memory or kernels window has at least `watched_steps` after its first block, which is discarded as warm-up. If the
    data has a period, a block lasts at least one period, and a clean window at least three blocks.

    A loop that may end soon has early windows after `early_after` steps, unless its user gave a schedule.
    """
    early = early_plan(early_after) if early_after is not None and schedule == Schedule() else None
    watched = 1 + watched_steps
    least = LEAST_BLOCKS * period if period > 1 else 0
    if device.startswith("cuda"):
        return Plan(
            schedule.warmup,
            schedule.max_warmup,
            patience=200,
            steps=schedule.steps or max(50, least),
            clean_s=0.0 if schedule.steps else 10.0,
            most_steps=0 if schedule.steps else MOST_STEPS["cuda"],
            memory_steps=max(4, watched),
            kernel_steps=max(20, 5 + watched_steps),
            kernel_block_steps=5,
            windows=windows,
            repeat=schedule.repeat,
            period=period,
            early=early,
        )
    return Plan(
        schedule.warmup,
        schedule.max_warmup,
        steps=schedule.steps or max(10, least),
        warmup_s=WARMUP_S,
        window_s=math.inf if schedule.steps else WINDOW_S,
        most_steps=0 if schedule.steps else MOST_STEPS["cpu"],
        memory_steps=max(4, watched),
        kernel_steps=max(4, watched),
        windows=windows,
        repeat=schedule.repeat,
        period=period,
        early=early,
    )


def early_plan(warmup: int) -> Plan:
    """Return the plan of early windows: after `warmup` steps, one window of each kind, of few steps."""
    return Plan(warmup, steps=EARLY_STEPS, memory_steps=EARLY_STEPS, kernel_steps=EARLY_STEPS, windows=EARLY)


def together(plan: Plan) -> Plan:
    """Return the plan of a process that trains with others, in which counts of steps alone decide.

    Each process follows it by itself. If one judged its own times, or a clock, its windows would begin at other steps
    than another's: then each would take what the other's watching costs for its own waiting. So a warm-up that would
    last until the loop has settled has a fixed number of steps, and a clean window neither a least time nor more steps.
    """
    judged = min(plan.patience, 2 * BLOCKS * plan.warmup_block_steps)
    warmup = plan.warmup if plan.warmup is not None else plan.max_warmup or judged
    early = None if plan.early is None else together(plan.early)
    return replace(plan, warmup=warmup, clean_s=0.0, window_s=math.inf, most_steps=0, early=early, is_together=True)


class Progress(Protocol):
    """Receives the progress of a run."""

    def __call__(self, phase: str, step: int, of: int | None) -> None:
        """Take the phase, the steps done in it, and its total number of steps (None if not known)."""


def silent(phase: str, step: int, of: int | None) -> None:
    """Report no progress."""
