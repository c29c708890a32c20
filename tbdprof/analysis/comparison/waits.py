"""The clean windows of runs on a CPU, with or without the time in which their threads waited for a core.

Where other processes take the cores, this time differs from run to run by far more than the training does. It is
measured, so it can be left out: what remains is the time that the training itself took.
"""

from collections.abc import Sequence

from tbdprof.analysis.time.counted import waited_share
from tbdprof.analysis.time.time_blocks import of_windows
from tbdprof.facts.arrays import Floats
from tbdprof.facts.recording import Window
from tbdprof.facts.windows import CLEAN
from tbdprof.results.summary import Summary

LEAST = 3  # runs: of one a side, nothing shows how what remains varies


def can_be_left_out(runs: Sequence[Summary]) -> bool:
    """Return whether the waits are known in all of several runs on a CPU, and other processes disturbed one of them."""
    if len(runs) < LEAST or any(each.recording.run.device != "cpu" for each in runs):
        return False
    shares = [waited_share(each.recording, window) for each in runs for window in _windows(each)]
    return None not in shares and any(shares) and any(each.cpu is not None and each.cpu.disturbed for each in runs)


def clean(summary: Summary, kind: str, *, without_waits: bool = False) -> tuple[list[Floats], list[Floats]]:
    """Return the steps or units, and the seconds, of the blocks of each clean window."""
    windows = _windows(summary)
    blocks = [of_windows([each]) for each in windows]
    shares = [waited_share(summary.recording, each) or 0.0 if without_waits else 0.0 for each in windows]
    seconds = [(1 - share) * each.seconds for share, each in zip(shares, blocks, strict=True)]
    return [getattr(each, kind) for each in blocks], seconds


def _windows(summary: Summary) -> list[Window]:
    return [each for each in summary.recording.named(CLEAN) if len(each.table("step"))]
