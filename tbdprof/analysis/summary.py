"""Everything that can be said about a run: its recording, and one optional result an analysis."""

import math
from dataclasses import dataclass

from tbdprof.analysis import throughput as rates
from tbdprof.analysis.memory import Memory, measure
from tbdprof.analysis.missing import QUIET, reasons
from tbdprof.recording import KILLED, Recording


@dataclass(frozen=True, slots=True)
class Summary:
    """What reporters take. A result that could not be had is None, with its reason in `missing`."""

    recording: Recording
    memory: Memory | None
    throughput: rates.Throughput | None
    cpu: rates.CpuUtilization | None
    memory_overhead: rates.Overhead | None
    missing: dict[str, str]

    @property
    def parameter_count(self) -> int | None:
        """Return how many values are trained, each storage once; None where no parameter was seen."""
        trained = [math.prod(item.shape) for item in self.recording.run.parameters if item.trainable]
        return sum(trained) if trained else None

    @property
    def missing_now(self) -> dict[str, str]:
        """Return what is missing from this run but could have been measured."""
        return {name: reason for name, reason in self.missing.items() if reason not in QUIET}

    @property
    def lost_windows(self) -> list[str]:
        """Name the windows a killed process took with it; a window that is still open is not lost."""
        return self.recording.lost_windows if self.recording.run.ended_by == KILLED else []


def summarize(recording: Recording) -> Summary:
    """Work out all results of a recording."""
    memory = measure(recording)
    throughput = rates.throughput(recording)
    cpu = rates.cpu_utilization(recording)
    overhead = rates.overhead(recording, "memory")
    missing = reasons(recording, memory, throughput, cpu, overhead)
    return Summary(recording, memory, throughput, cpu, overhead, missing)
