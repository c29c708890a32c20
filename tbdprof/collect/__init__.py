"""Instruments that belong to no framework: the host, the driver, hardware counters."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # records need numpy, and reading the host does not
    from tbdprof.facts.records import Strings
    from tbdprof.facts.rows import Tables


@dataclass(frozen=True, slots=True)
class Collected:
    """What a collector recorded: tables by kind, and why data is missing, by the data's name in reports."""

    tables: "Tables" = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)


class Collector(Protocol):
    """Records facts beside a framework's hook while a window is open; times are `time.monotonic_ns`.

    For each window call `start`, `stop` and `drain`, and at the end `close`. Only `start` may raise into the loop that
    is watched. A collector does nothing in a forked child.
    """

    name: str  # under which `missing` says why it has no data

    def start(self, window: str) -> None:
        """Begin to record; if that is not possible, change nothing and raise UnavailableError with the reason."""

    def stop(self) -> None:
        """End recording, while the loop's device is idle; do nothing the second time."""

    def drain(self, strings: "Strings") -> Collected:
        """Return, once, what was recorded since the last start."""

    def close(self) -> None:
        """Release everything."""
