"""The clean windows of runs on a CPU, with or without the time in which their threads waited for a core.

Where other processes take the cores, this time differs from run to run by far more than the training does. It is
measured, so it can be left out: what remains is the time that the training itself took.
"""

from collections.abc import Sequence

from tbdprof.analysis.time import counted
from tbdprof.analysis.time.time_blocks import of_windows
from tbdprof.facts.arrays import Floats
from tbdprof.facts.counters import WAITED_FOR_CORE
from tbdprof.facts.recording import Recording, Window
from tbdprof.facts.windows import CLEAN

MOST = 0.99  # of a window's blocks: the clocks are read one after the other
LEAST = 3  # runs: of one a side, nothing shows how what remains varies


def can_be_left_out(runs: Sequence[Recording]) -> bool:
    """Return whether the waits are known in all of several runs on a CPU."""
    if len(runs) < LEAST or any(each.run.device != "cpu" for each in runs):
        return False
    shares = [_share(each, window) for each in runs for window in _windows(each)]
    return None not in shares and any(shares)


def clean(run: Recording, kind: str, *, without_waits: bool = False) -> tuple[list[Floats], list[Floats]]:
    """Return the steps or units, and the seconds, of the blocks of each clean window."""
    windows = _windows(run)
    blocks = [of_windows([each]) for each in windows]
    shares = [_share(run, each) or 0.0 if without_waits else 0.0 for each in windows]
    seconds = [(1 - share) * each.seconds for share, each in zip(shares, blocks, strict=True)]
    return [getattr(each, kind) for each in blocks], seconds


def _windows(run: Recording) -> list[Window]:
    return [each for each in run.named(CLEAN) if len(each.table("step"))]


def _share(recording: Recording, window: Window) -> float | None:
    """Return the share of a window's blocks in which the process waited for a core, None if it is not known."""
    waited, elapsed = counted.growth(recording, window, WAITED_FOR_CORE)
    seconds = float(of_windows([window]).seconds.sum())
    return min(waited / seconds, MOST) if elapsed and seconds else None
