"""Everything that can be said about a run: its recording, and one optional result of each analysis."""

import math
from dataclasses import dataclass, field

from tbdprof.facts.recording import STILL_RUNNING, Recording
from tbdprof.facts.windows import WARMUP
from tbdprof.results.device import Device, Energy, Traced
from tbdprof.results.kernels import Counted, Group, LayerTime, LowUtilization, Utilization
from tbdprof.results.levels import Levels, PipeUse
from tbdprof.results.memory import DeviceMemory, Memory, PostMortem
from tbdprof.results.reasons import QUIET
from tbdprof.results.sampled import Sampled
from tbdprof.results.time import CpuUtilization, Lengths, Overhead, StepTime, Throughput, Verdict


@dataclass(frozen=True, slots=True)
class Timing:
    """Where the time of a step goes, and how well the device is used in that time."""

    step_time: StepTime
    utilization: Utilization
    layers: tuple[LayerTime, ...]
    groups: tuple[Group, ...]
    low_utilization: LowUtilization | None
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Summary:
    """What reports are made of. A missing result is None, and `missing` has the reason.

    `remarks` are the reason for no None. They stand in `missing`, too, where reports show them.
    """

    recording: Recording
    memory: Memory | None
    throughput: Throughput | None
    cpu: CpuUtilization | None
    memory_overhead: Overhead | None
    missing: dict[str, str]
    kernels_overhead: Overhead | None = None
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
    sampled_overhead: Overhead | None = None
    device_memory: DeviceMemory | None = None
    post_mortem: PostMortem | None = None
    fp32_pipe: PipeUse | None = None
    tensor_pipe: PipeUse | None = None
    lengths: tuple[Lengths, ...] = ()  # of the steps' sequences, none where none were counted
    remarks: dict[str, str] = field(default_factory=dict)

    @property
    def parameter_count(self) -> int | None:
        """Return how many values are trained, each storage once; None: no parameter was seen."""
        trained = [math.prod(item.shape) for item in self.recording.run.parameters if item.trainable]
        return sum(trained) if trained else None

    @property
    def batch_size(self) -> float | None:
        """Return the samples of a step, where all steps have the same; None: not known."""
        run = self.recording.run
        seen = {} if self.throughput is None else self.throughput.per_step
        return seen.get(run.sample_unit, run.batch_size)

    @property
    def precision(self) -> str | None:
        """Return the precision asked for, else that of most of the run's matmuls and convolutions; None: not known."""
        asked, use = self.recording.run.precision, self.utilization
        return asked if asked is not None or use is None else use.precision

    @property
    def missing_now(self) -> dict[str, str]:
        """Return what is missing from this run but could have been measured."""
        return {name: reason for name, reason in self.missing.items() if reason not in QUIET}

    @property
    def early_steps(self) -> dict[str, int]:
        """Return the steps of the early windows that stand for windows that the loop did not reach, by name."""
        windows = [window for window in self.recording.early if window.name != WARMUP]
        return {window.name: len(window.table("step")) for window in windows if len(window.table("step"))}

    @property
    def lost_windows(self) -> list[str]:
        """Name the windows whose records never reached the file; those of a run that goes on are not lost."""
        return [] if self.recording.run.ended_by == STILL_RUNNING else self.recording.lost_windows
