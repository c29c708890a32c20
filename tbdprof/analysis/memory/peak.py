"""When the memory of a window is at its peak: the instant that the breakdown and the page's picture are of."""

from dataclasses import dataclass

import numpy as np

from tbdprof.analysis.memory.account import Account
from tbdprof.facts.arrays import Ints
from tbdprof.facts.recording import Recording


@dataclass(frozen=True, slots=True)
class Height:
    """The bytes in use after each event, and after which event they are at the peak."""

    total: Ints  # blocks with their rounding, and what of the framework's total no block explains
    peak_row: int
    is_independent: bool  # the peak is that of the framework's own total, kept since before the model

    def peak_bytes(self, worked: Account) -> int:
        """Return the bytes at the peak: the framework's own total, or without one the allocator's."""
        if self.is_independent:
            return int(worked.levels.total_bytes[self.peak_row])
        return int(self.total[self.peak_row])


def height(recording: Recording, worked: Account) -> Height:
    """Return the height of memory over a window, and its peak within the counted steps."""
    levels = worked.levels
    total = np.maximum(worked.unknown_bytes, 0) + levels.known_bytes
    total += levels.rounding_bytes
    total += worked.scratch_bytes
    independent = recording.run.independent_total is None and levels.base_total_bytes >= 0
    highest = np.argmax(np.where(worked.counted, levels.total_bytes if independent else total, -1))
    return Height(total, int(highest), independent)
