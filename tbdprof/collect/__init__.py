"""Instruments that belong to no framework: the host, the driver, hardware counters."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # records need numpy, and a look at the host does not
    from tbdprof.facts.records import Strings, Tables


@dataclass(frozen=True, slots=True)
class Collected:
    """What a collector recorded: tables by kind, and what could not be had, and why, by the name it has in reports."""

    tables: "Tables" = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)


class Collector(Protocol):
    """Records facts beside a framework's hook while a window is open; times are `time.monotonic_ns`.

    Order of calls: for each window `start`, `stop`, `drain`; at last `close`. Nothing of it may raise into the loop it
    watches but `start`, and it is inert in a forked child.
    """

    name: str  # under which `missing` tells why there is nothing from it

    def start(self, window: str) -> None:
        """Begin to record; raises UnavailableError with the reason, and then changes nothing."""

    def stop(self) -> None:
        """End recording; the loop's device is idle then. Does nothing the second time."""

    def drain(self, strings: "Strings") -> Collected:
        """Return what was recorded since the last start, once."""

    def close(self) -> None:
        """Give everything back."""
