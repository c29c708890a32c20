"""Everything that can be said about a run: its recording, and one optional result an analysis."""

import math
from dataclasses import dataclass, replace

from tbdprof.analysis.device.device_missing import device_reasons
from tbdprof.analysis.device.driver import Device, clock, device
from tbdprof.analysis.device.energy import Energy, energy
from tbdprof.analysis.device.levels import Levels, judged, of_device
from tbdprof.analysis.device.sampled import Sampled, pipes
from tbdprof.analysis.device.sampled import measure as measure_sampled
from tbdprof.analysis.device.sampled_missing import without_sampled
from tbdprof.analysis.device.traced import Traced, traced, without_traced
from tbdprof.analysis.kernels.counted import Counted
from tbdprof.analysis.kernels.groups import Group
from tbdprof.analysis.kernels.layers import LayerTime
from tbdprof.analysis.kernels.low_utilization import LowUtilization
from tbdprof.analysis.memory.breakdown import Memory, measure
from tbdprof.analysis.memory.device_memory import DeviceMemory
from tbdprof.analysis.memory.device_memory import measure as measure_device
from tbdprof.analysis.memory.device_memory import reasons as without_device_memory
from tbdprof.analysis.memory.post_mortem import PostMortem, examine
from tbdprof.analysis.memory.post_mortem import reasons as without_post_mortem
from tbdprof.analysis.missing import QUIET, reasons, without_levels
from tbdprof.analysis.time import throughput as rates
from tbdprof.analysis.time.consumption import Lengths, lengths
from tbdprof.analysis.time.step_time import StepTime
from tbdprof.analysis.time.utilization import Utilization, at_clock
from tbdprof.analysis.time.verdict import Verdict
from tbdprof.analysis.timing import Timing, timing
from tbdprof.facts.recording import KILLED, Recording
from tbdprof.facts.windows import KERNELS, MEMORY, SAMPLED


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
    counted: Counted | None = None
    levels: Levels | None = None
    device: Device | None = None
    energy: Energy | None = None
    sampled: Sampled | None = None
    traced: Traced | None = None
    sampled_overhead: rates.Overhead | None = None
    device_memory: DeviceMemory | None = None
    post_mortem: PostMortem | None = None
    lengths: tuple[Lengths, ...] = ()  # of the steps' sequences, none where none were counted

    @property
    def parameter_count(self) -> int | None:
        """Return how many values are trained, each storage once; None where no parameter was seen."""
        trained = [math.prod(item.shape) for item in self.recording.run.parameters if item.trainable]
        return sum(trained) if trained else None

    @property
    def precision(self) -> str | None:
        """Return what the run computes in: as it was told, else as most of its products do; None: neither is known."""
        told, use = self.recording.run.precision, self.utilization
        return told if told is not None or use is None else use.precision

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
    memory, throughput, sampled = measure(recording), rates.throughput(recording), measure_sampled(recording)
    found = timing(recording, throughput)
    use = None if found is None else _at_measured_clock(recording, found.utilization)
    told = device(recording, None if use is None else use.busy_in_window)
    exact, levels = judged(recording, found, pipes(sampled), of_device(told))
    summary = Summary(
        recording=recording,
        memory=memory,
        throughput=throughput,
        cpu=rates.cpu_utilization(recording),
        memory_overhead=rates.overhead(recording, MEMORY),
        missing={},
        kernels_overhead=rates.overhead(recording, KERNELS),
        utilization=use,
        step_time=None if found is None else found.step_time,
        layers=None if found is None else found.layers,
        groups=None if found is None else found.groups,
        low_utilization=None if found is None else found.low_utilization,
        verdict=None if found is None else found.verdict,
        data_wait=rates.data_wait(recording),
        device=told,
        energy=energy(recording),
        counted=exact,
        levels=levels,
        sampled=sampled,
        traced=traced(recording),
        sampled_overhead=rates.overhead(recording, SAMPLED),
        device_memory=measure_device(recording, memory),
        post_mortem=examine(recording),
        lengths=lengths(recording),
    )
    return replace(summary, missing=_missing(summary, found))


def _missing(summary: Summary, found: Timing | None) -> dict[str, str]:
    """Return the reason for all that is None in a summary; where two have one for the same, the later one's counts."""
    recording, told = summary.recording, of_device(summary.device)
    overheads = {MEMORY: summary.memory_overhead, KERNELS: summary.kernels_overhead}
    return {
        **device_reasons(recording, summary.device, summary.energy, summary.utilization, summary.throughput),
        **without_device_memory(recording, summary.memory),
        **without_post_mortem(recording, summary.post_mortem),
        **reasons(recording, summary.memory, summary.throughput, summary.cpu, overheads, found),
        **without_levels(recording, summary.counted, summary.levels),
        **without_traced(recording, summary.traced),
        **without_sampled(recording, summary.sampled, summary.sampled_overhead, told),
    }


def _at_measured_clock(recording: Recording, found: Utilization) -> Utilization:
    """Return the utilization with what it is at the clock of the kernels windows, where that was sampled."""
    measured = clock(recording, KERNELS)
    return at_clock(found, recording.run, None if measured is None else measured.mean_hz)
