"""What MXNet's allocator reports: live blocks, ordered events, and how many bytes are live."""

from dataclasses import dataclass
from typing import NamedTuple

from tbdprof.facts.records import AllocationKind


class Block(NamedTuple):
    """A live block; `sequence` is its place in the window's order (0: before the window).

    `planning` says that a memory planner was filling its pools when the block was allocated.
    """

    device: int
    size_bytes: int
    planning: bool
    sequence: int
    allocated_bytes: int  # -1 if it is not known what the device's pool makes of the size


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
    total_bytes: int  # includes the rounding where that is known; -1 if not known


@dataclass(slots=True)
class Level:
    """Live bytes on a device including the pool's rounding, their peak, and the rounding alone."""

    now_bytes: int = 0
    peak_bytes: int = 0
    rounding_bytes: int = 0

    def add(self, size_bytes: int, allocated_bytes: int, sign: int) -> None:
        """Count a block that was allocated (1) or freed (-1); every allocation calls this, in clean windows too."""
        if allocated_bytes > size_bytes:
            self.rounding_bytes += sign * (allocated_bytes - size_bytes)
            size_bytes = allocated_bytes
        self.now_bytes += sign * size_bytes
        if self.now_bytes > self.peak_bytes:
            self.peak_bytes = self.now_bytes
