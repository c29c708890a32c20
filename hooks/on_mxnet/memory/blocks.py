"""What MXNet's allocator reports: live blocks, ordered events, and how many bytes are live."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tbdprof.facts.records import AllocationKind


class Maker(NamedTuple):
    """A part of MXNet that was at work when a block was allocated, and that keeps memory which Python cannot see."""

    kind: str
    store: int = 0  # of a store through which devices exchange gradients: its id in Python,
    key: str = ""  # the key that it was called with,
    is_weight: bool = False  # and whether it was given a weight, not gradients


PLANNER = Maker("planner")  # of a hybridized block's pools
EXECUTOR = Maker("executor")  # while it is bound: what it needs besides its arguments


class Stored(NamedTuple):
    """A block that a store keeps for itself; the first fields are as in `Maker`."""

    store: int
    key: str
    is_weight: bool
    device: int
    size_bytes: int


class Block(NamedTuple):
    """A live block; `sequence` is its place in the window's order (0: before the window)."""

    device: int
    size_bytes: int
    maker: Maker | None
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


# An event as the native code keeps it: the fields of `Event` in the same order.
EVENT = np.dtype([(name, "<u8" if name in {"device", "thread", "address"} else "<i8") for name in Event._fields])
Events = NDArray[np.void]


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


def stored(live: Mapping[int, Block]) -> dict[int, Stored]:
    """Return the blocks that stores keep, by address."""
    return {
        address: Stored(maker.store, maker.key, maker.is_weight, block.device, block.size_bytes)
        for address, block in live.items()
        if (maker := block.maker) is not None and maker.store
    }
