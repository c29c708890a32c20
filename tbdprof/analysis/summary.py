"""Everything that can be said about a run: its recording, and one optional result an analysis."""

import math
from dataclasses import dataclass

from tbdprof.analysis import throughput as rates
from tbdprof.analysis.groups import Group
from tbdprof.analysis.layers import LayerTime
from tbdprof.analysis.low_utilization import LowUtilization
from tbdprof.analysis.memory import Memory, measure
from tbdprof.analysis.missing import QUIET, reasons
from tbdprof.analysis.step_time import StepTime
from tbdprof.analysis.timing import timing
from tbdprof.analysis.utilization import Utilization
from tbdprof.analysis.verdict import Verdict
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
    kernels_overhead: rates.Overhead | None = None
    utilization: Utilization | None = None
    step_time: StepTime | None = None
    layers: tuple[LayerTime, ...] | None = None
    groups: tuple[Group, ...] | None = None
    low_utilization: LowUtilization | None = None
    verdict: Verdict | None = None
    data_wait: float | None = None

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
    overheads = {window: rates.overhead(recording, window) for window in ("memory", "kernels")}
    found = timing(recording, throughput)
    return Summary(
        recording=recording,
        memory=memory,
        throughput=throughput,
        cpu=cpu,
        memory_overhead=overheads["memory"],
        missing=reasons(recording, memory, throughput, cpu, overheads, found),
        kernels_overhead=overheads["kernels"],
        utilization=None if found is None else found.utilization,
        step_time=None if found is None else found.step_time,
        layers=None if found is None else found.layers,
        groups=None if found is None else found.groups,
        low_utilization=None if found is None else found.low_utilization,
        verdict=None if found is None else found.verdict,
        data_wait=rates.data_wait(recording),
    )
