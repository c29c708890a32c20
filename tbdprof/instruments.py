"""The instruments a run gets beside its framework's hook, by the device it runs on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tbdprof.collect import Collector
from tbdprof.collect.host_load import OF_HOST, Counters, HostLoad
from tbdprof.plan import WINDOWS


@dataclass(frozen=True, slots=True)
class Instruments:
    """Collectors by the window in which they are on, the windows a run has, and what it does without, and why."""

    collectors: Mapping[str, Sequence[Collector]] = field(default_factory=lambda: {"clean": [HostLoad()]})
    windows: tuple[str, ...] = WINDOWS
    missing: Mapping[str, str] = field(default_factory=dict)


def of(device: str, framework: str, counters: Counters | None = None) -> Instruments:
    """Return the instruments for a device ("cpu", "cuda:0"); none of them is started, and nothing is raised.

    `counters` are the loop's own; like the host's they grow, and are read at the edges of clean windows.
    """
    host = HostLoad({**OF_HOST, **(counters or {})})
    return Instruments({"clean": [host]})
