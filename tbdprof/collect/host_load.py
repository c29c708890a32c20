"""The load on the host, and the loop's own counters, read at the start and end of a window."""

import time
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from tbdprof.collect import Collected, host
from tbdprof.collect.core_waits import CoreWaits
from tbdprof.facts.counters import MACHINE_CPU, PROCESS_CPU, RANKS_CPU, WAITED_FOR_CORE
from tbdprof.facts.keys import ReasonFor
from tbdprof.facts.records import Strings
from tbdprof.facts.rows import SampleRow, table

Counters = Mapping[str, Callable[[], float]]

OF_HOST: Counters = MappingProxyType(
    {
        PROCESS_CPU: host.process_cpu_seconds,
        MACHINE_CPU: host.machine_busy_cpu_seconds,
        WAITED_FOR_CORE: CoreWaits(),
    }
)
OF_RANKS: Counters = MappingProxyType({RANKS_CPU: host.siblings_cpu_seconds})  # where processes train together


class HostLoad:
    """Samples growing counters at the edges of windows; a `Collector`."""

    name: str = ReasonFor.HOST

    def __init__(self, counters: Counters = OF_HOST, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._counters = counters
        self._of_blocks = [each for each in counters.values() if isinstance(each, CoreWaits)]
        self._clock = clock
        self._read: list[tuple[str, int, float]] = []

    def start(self, window: str) -> None:
        """Read the counters."""
        self._read = []
        self._sample(self._counters)

    def stop(self) -> None:
        """Read the counters again, the last one first: what it takes to read one is not in the next one's window."""
        self._sample(reversed([*self._counters]))

    def begin_block(self) -> None:
        """Count what is counted in blocks of steps alone: what is done between them is not the loop's."""
        for counter in self._of_blocks:
            counter.begin()

    def end_block(self) -> None:
        """Count no more until the next block."""
        for counter in self._of_blocks:
            counter.end()

    def drain(self, strings: Strings) -> Collected:
        """Return the counters' readings since `start`, as samples."""
        rows = [SampleRow(strings.add(name), -1, at_ns, value) for name, at_ns, value in self._read]
        self._read = []
        return Collected({"sample": table("sample", rows)})

    def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def _sample(self, names: Iterable[str]) -> None:
        self._read += [(name, self._clock(), self._counters[name]()) for name in names]
