"""A CPU's peaks that need no measuring: measuring them takes longer than many of the loops in these tests."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tbdprof.facts.records import Peaks
from tbdprof.hooks import probing

# First on the path of a program, this folder makes it start quickly, with known peaks.
QUICK_START = str(Path(__file__).parent / "quick_start")


def use() -> None:
    """Give the next loops of this process known peaks."""
    probing.peaks = _peaks


def measure_once() -> None:
    """Have the next loops of this process measure the peaks, and not again at their end on a busy machine."""
    Peaks.is_disturbed = property(lambda _: False)  # type: ignore[assignment, method-assign]


def _peaks(device: str, precisions: Sequence[str], measured: Any) -> Peaks:
    assert device == "cpu"
    return Peaks(dict.fromkeys(precisions, 1e11), 1e10, {**dict.fromkeys(precisions, "known"), "memory": "known"})
