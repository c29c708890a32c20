"""A memory window worked out: its blocks, what each is for, and the levels after each event.

Only what the run's device reported counts; what other devices did is told apart by `left_out`.
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
    """Which owner record names each block: its role (UNKNOWN: none) and the record's index (-1: none)."""

    role: Roles
    record: Ints


@dataclass(frozen=True, slots=True)
class Account:
    """A memory window worked out: its blocks, their roles, and the levels after each event."""

    window: Window
    strings: Strings
    blocks: Blocks
    levels: Levels
    owned: Owned
    tree: SpanTree
    roles: Roles
    scratch_bytes: Ints  # after each event: no reported block, but it came and went within one operator
    unknown_bytes: Ints  # after each event: of the framework's total, what else no reported block explains
    counted: Bools  # the events within the steps that count
    marks: Ints  # ends of steps, from that of what settles on
    seen_from: int  # where what every thread does is seen

    def series(self, role: Role) -> Ints:
        """Return the bytes of a role after each event."""
        blocks = self.blocks
        series = running(self.levels.sequence, blocks, blocks.size_bytes, self.roles == role)
        if role == Role.WORKSPACE:
            return series + self.scratch_bytes
        return series + np.maximum(self.unknown_bytes, 0) if role == Role.UNKNOWN else series

    def live(self, row: int) -> Ints:
        """Return the blocks that lived after an event."""
        at = self.levels.sequence[row]
        return np.flatnonzero((self.blocks.start <= at) & (at < self.blocks.end))
