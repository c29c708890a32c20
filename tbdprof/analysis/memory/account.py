"""The account of a memory window: its blocks, their roles, and the bytes live after each event.

It covers the run's device alone; `accounting.left_out` reports the events of other devices.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tbdprof.analysis.memory.blocks import (
    Blocks,
    Levels,
    running,
)
from tbdprof.analysis.spans import SpanTree
from tbdprof.facts.arrays import Bools, Ints
from tbdprof.facts.recording import Window
from tbdprof.facts.records import Role, Strings

Roles = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Owned:
    """The owner record that names each block: its role (UNKNOWN if none) and the record's index (-1 if none)."""

    role: Roles
    record: Ints


@dataclass(frozen=True, slots=True)
class Account:
    """The account of a memory window: its blocks, their roles, and the bytes live after each event."""

    window: Window
    strings: Strings
    blocks: Blocks
    levels: Levels
    owned: Owned
    tree: SpanTree
    roles: Roles
    scratch_bytes: Ints  # after each event: bytes without a reported block that came and went within one operator
    unknown_bytes: Ints  # after each event: other bytes of the framework's total without a reported block
    counted: Bools  # the events within the counted steps
    marks: Ints  # ends of steps, from the end of the warm-up on
    seen_from: int  # sequence number from which every thread has ended a turn

    def series(self, role: Role) -> Ints:
        """Return the bytes of a role after each event."""
        blocks = self.blocks
        series = running(self.levels.sequence, blocks, blocks.size_bytes, self.roles == role)
        if role == Role.WORKSPACE:
            return series + self.scratch_bytes
        return series + np.maximum(self.unknown_bytes, 0) if role == Role.UNKNOWN else series

    def live(self, row: int) -> Ints:
        """Return the blocks that are live after an event."""
        at = self.levels.sequence[row]
        return np.flatnonzero((self.blocks.start <= at) & (at < self.blocks.end))
