"""What MXNet's allocator tells: live blocks, events in their order, and how much is live."""

from dataclasses import dataclass
from typing import NamedTuple

from tbdprof.facts.records import AllocationKind


class Block(NamedTuple):
    """A live block, made at a place of the window's order (0: before it).

    `planning` tells that a memory planner's pools were being filled when it was made.
    """

    device: int
    size_bytes: int
    planning: bool
    sequence: int
    allocated_bytes: int  # -1: what the device's pool made of the size cannot be told


class Event(NamedTuple):
    """An allocation or a free."""

    sequence: int
    kind: AllocationKind
    device: int
    thread: int
    address: int
    size_bytes: int
    allocated_bytes: int  # as in `Block`
    time_ns: int
    span: int
    total_bytes: int  # with the rounding, where that is told; -1: not told


@dataclass(slots=True)
class Level:
    """Bytes live on a device with what its pool rounds up by, the most there ever were, and that rounding alone."""

    now_bytes: int = 0
    peak_bytes: int = 0
    rounding_bytes: int = 0

    def add(self, size_bytes: int, allocated_bytes: int, sign: int) -> None:
        """Count a block that came (1) or went (-1); every allocation of a loop comes by here, in clean windows too."""
        if allocated_bytes > size_bytes:
            self.rounding_bytes += sign * (allocated_bytes - size_bytes)
            size_bytes = allocated_bytes
        self.now_bytes += sign * size_bytes
        if self.now_bytes > self.peak_bytes:
            self.peak_bytes = self.now_bytes
