"""Blocks of steps as measured intervals: the basis of throughput, overhead and the host's load.

Only the edges of a block synchronize with the device, so a block's time is that of finished work.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tbdprof.facts.arrays import Floats
from tbdprof.facts.recording import Window
from tbdprof.facts.rows import Table

RESAMPLES = 10_000
CONFIDENCE = 0.95
SEED = 20180917


@dataclass(frozen=True, slots=True)
class TimeBlocks:
    """One entry per block."""

    steps: Floats
    units: Floats
    seconds: Floats

    @property
    def step_seconds(self) -> Floats:
        """Return the time per step of each block, in seconds."""
        return self.seconds / self.steps


def settled(steps: Table) -> Table:
    """Return the steps of a kernels window without its first block, which is discarded as warm-up."""
    later: Table = steps[steps["block"] > steps["block"].min(initial=np.iinfo(np.int64).max)]
    return np.sort(later, order="start_ns")


def of_windows(
    windows: Sequence[Window], *, skip_first_step: bool = False, skip_first_block: bool = False
) -> TimeBlocks:
    """Return the blocks of some windows, optionally without each window's first step or first block (warm-up)."""
    tables = [window.table("step") for window in windows]
    return of_steps([settled(each) if skip_first_block else each for each in tables], skip_first_step=skip_first_step)


def of_steps(tables: Sequence[Table], *, skip_first_step: bool = False) -> TimeBlocks:
    """Return the blocks of some windows' steps."""
    pieces = [_pieces(each, skip_first_step) for each in tables]
    joined = np.concatenate(pieces) if pieces else np.zeros((0, 3))
    return TimeBlocks(joined[:, 0], joined[:, 1], joined[:, 2])


def _pieces(steps: Table, skip_first_step: bool) -> Floats:
    if skip_first_step and len(steps) > 1:
        steps = steps[1:]
    pieces = []
    for block in np.unique(steps["block"]):
        inside = steps[steps["block"] == block]
        seconds = (inside["end_ns"].max() - inside["start_ns"].min()) / 1e9
        pieces.append((len(inside), inside["units"].sum(), seconds))
    return np.array(pieces, float).reshape(-1, 3)


def ratio_interval(above: Floats, below: Floats) -> tuple[float, float] | None:
    """Return the 95 % interval of sum(above) / sum(below) over paired blocks: percentile bootstrap, seeded.

    The result is None for fewer than two blocks: there is nothing to resample.
    """
    if len(above) < 2:
        return None
    picks = np.random.Generator(np.random.PCG64(SEED)).integers(len(above), size=(RESAMPLES, len(above)))
    return _interval(above[picks].sum(axis=1) / below[picks].sum(axis=1))


def mean_interval(values: Floats) -> tuple[float, float] | None:
    """Return the 95 % interval of the mean of some values, or None for fewer than two."""
    return ratio_interval(values, np.ones(len(values)))


def mean_ratio_interval(above: Floats, below: Floats) -> tuple[float, float] | None:
    """Return the 95 % interval of mean(above) / mean(below) of two independent groups, resampled separately."""
    if len(above) < 2 or len(below) < 2:
        return None
    generator = np.random.Generator(np.random.PCG64(SEED))
    one = above[generator.integers(len(above), size=(RESAMPLES, len(above)))].mean(axis=1)
    other = below[generator.integers(len(below), size=(RESAMPLES, len(below)))].mean(axis=1)
    return _interval(one / other)


def _interval(values: Floats) -> tuple[float, float]:
    tail = 50 * (1 - CONFIDENCE)
    low, high = np.percentile(values, [tail, 100 - tail])
    return float(low), float(high)
