"""How complete and how well timed a window's records of a GPU are: judged and worded alike, whoever recorded them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tbdprof.facts import counters
from tbdprof.facts.keys import RemarkOn
from tbdprof.facts.records import Strings
from tbdprof.facts.rows import SampleRow, Table

TOLERATED_NS = 10_000  # tolerated clock misalignment: about the length of a short kernel
LOST_KERNELS = "launches without their kernel"
IMPOSSIBLE = "records with impossible times"
UNREADABLE = "records that could not be read"
DROPPED = "dropped by the profiler"
_LOST = "{} of {} records of kernels, copies and memsets were lost"
_UNLAUNCHED = "{} of {} kernels, copies and memsets came without the call that launched them"
_OFF = "the device's times may be off by {:.0f} µs"


def is_possible(start: int, end: int) -> bool:
    """Return whether a record can have these times; CUPTI writes 0 where it has none."""
    return 0 < start <= end


@dataclass(frozen=True, slots=True)
class Quality:
    """What a window's records lack; `lost` counts records by what happened to them."""

    kernels: Table
    lost: Mapping[str, int] = field(default_factory=dict)
    clock_ns: float = 0.0  # how far the clocks of the device and the host may differ, as the recorder knows

    @property
    def lost_count(self) -> int:
        """Return the number of lost records."""
        return sum(self.lost.values())

    @property
    def residual_ns(self) -> float:
        """Return how far the clocks may differ: as the recorder knows, or as a start before its launch shows."""
        asked = self.kernels[self.kernels["launch_ns"] >= 0]
        return max(self.clock_ns, float((asked["launch_ns"] - asked["start_ns"]).max(initial=0)))

    def missing(self) -> dict[str, str]:
        """Return the remarks on lost records, unknown launches and the clock."""
        found: dict[str, str] = {}
        lost, residual_ns = self.lost_count, self.residual_ns
        if lost:
            what = ", ".join(f"{name} ({count})" for name, count in self.lost.items() if count)
            found[RemarkOn.KERNELS_LOST] = f"{_LOST.format(lost, len(self.kernels) + lost)}: {what}"
        unlaunched = int((self.kernels["launch_ns"] < 0).sum())
        if unlaunched:
            found[RemarkOn.LAUNCHES] = _UNLAUNCHED.format(unlaunched, len(self.kernels))
        if residual_ns > TOLERATED_NS:
            found[RemarkOn.CLOCK] = _OFF.format(residual_ns / 1e3)
        return found

    def samples(self, strings: Strings, device: int, begin_ns: int, end_ns: int) -> list[SampleRow]:
        """Return what was lost and the misalignment, as samples of a device from the window's begin to its end."""
        values = {counters.CLOCK_RESIDUAL: self.residual_ns, counters.LOST: float(self.lost_count)}
        return [SampleRow(strings.add(name), device, end_ns, value, begin_ns) for name, value in values.items()]
