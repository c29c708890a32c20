"""Everything that can be said about a run: its recording, and one optional result an analysis."""

import math
from dataclasses import dataclass

from tbdprof.analysis import throughput as rates
from tbdprof.analysis.memory import Memory, measure
from tbdprof.recording import Recording

NOT_YET = "this version of tbdprof does not measure it"
NOT_COUNTED = "the framework keeps no count over the whole run on this device"


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
        return {name: reason for name, reason in self.missing.items() if reason not in (NOT_YET, NOT_COUNTED)}


def summarize(recording: Recording) -> Summary:
    """Work out all results of a recording."""
    memory = measure(recording)
    throughput = rates.throughput(recording)
    cpu = rates.cpu_utilization(recording)
    overhead = rates.overhead(recording, "memory")
    missing = dict(recording.missing)
    if memory is None:
        missing.setdefault("memory", _without(recording, "memory"))
    elif recording.run.independent_total is not None:
        missing["independent_peak_bytes"] = recording.run.independent_total
    if throughput is None:
        missing.setdefault("throughput", _without(recording, "clean"))
    elif throughput.samples_per_unit(recording.run) is None:
        missing["throughput.samples_per_s"] = "prof.step() was not told the samples of a step"
    if cpu is None:
        missing.setdefault("utilization.cpu", missing.get("throughput", "not sampled in the clean windows"))
    if overhead is None:
        missing.setdefault("overhead.memory_window", "needs a memory window of two steps beside a clean one")
    if recording.run.whole_run_peak_bytes is None:
        missing.setdefault("whole_run_peak_bytes", NOT_COUNTED)
    for part in (
        "time",
        "time_by_layer",
        "kernels",
        "low_utilization",
        "flops_per_sample",
        "overhead.kernels_window",
    ):
        missing.setdefault(part, NOT_YET)
    for part in ("device_busy", "fp32_flop", "fp32_pipe", "tensor_pipe", "mfu"):
        missing.setdefault(f"utilization.{part}", NOT_YET)
    return Summary(recording, memory, throughput, cpu, overhead, missing)


def _without(recording: Recording, window: str) -> str:
    """Say why there is nothing from the windows of a name."""
    if not any(len(item.table("step")) for item in recording.windows):
        return "no step was recorded: prof.step() was never called, or the run ended during warm-up"
    if recording.named(window):
        return (
            f"the {window} windows saw no whole block" if window == "clean" else "no memory came or went in the window"
        )
    return f"the run ended before a {window} window was complete: {_spent(recording)}"


def _spent(recording: Recording) -> str:
    """Say where the steps went."""
    warmup = sum(len(item.table("step")) for item in recording.windows if item.name == "warmup")
    return f"{warmup} steps went to the warm-up; give the loop more, or fix the warm-up's length"
