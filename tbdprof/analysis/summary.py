"""All results of a run: its recording, one optional result per analysis, and the reasons for those that are missing."""

from typing import NamedTuple

from tbdprof.analysis.device.driver import device
from tbdprof.analysis.device.energy import energy
from tbdprof.analysis.device.levels import judged, of_device, pipe_use
from tbdprof.analysis.device.measured_clock import at_measured_clock
from tbdprof.analysis.device.sampled import cost, pipes
from tbdprof.analysis.device.sampled import measure as measure_sampled
from tbdprof.analysis.device.traced import traced
from tbdprof.analysis.memory.breakdown import measure
from tbdprof.analysis.memory.device_memory import BENEATH
from tbdprof.analysis.memory.device_memory import measure as measure_device
from tbdprof.analysis.memory.post_mortem import examine
from tbdprof.analysis.run_facts import run_facts
from tbdprof.analysis.time import throughput as rates
from tbdprof.analysis.time.consumption import lengths
from tbdprof.analysis.time.given import Given, given
from tbdprof.analysis.timing import timing
from tbdprof.facts.recording import Recording
from tbdprof.facts.windows import KERNELS, MEMORY
from tbdprof.results.device import Device, Energy, Traced
from tbdprof.results.found import Found
from tbdprof.results.kernels import Counted, Utilization
from tbdprof.results.levels import Levels, PipeUse
from tbdprof.results.memory import DeviceMemory, Memory, PostMortem
from tbdprof.results.sampled import Sampled
from tbdprof.results.summary import Summary, Timing
from tbdprof.results.time import CpuUtilization, Overhead, Throughput

# The report's names of parts that do not stand under their result's path; docs/json.md lists them.
NAMES = {
    **{f"device_memory.{name}": f"memory.{name}" for name in BENEATH},
    **{
        f"memory.{name}": name
        for name in ("independent_peak_bytes", "whole_run_peak_bytes", "rounding", "at_optimizer_step")
    },
    **{f"energy.windows.{name}": name for name in ("counter_joules", "power_joules")},
    "device.sm_clock.of_most": "of_most",
    "utilization.flops_per_sample": "run.flops_per_sample",
}


class _OfRun(NamedTuple):
    """The results about the training; those of the kernels windows are together."""

    memory: Found[Memory | None]
    post_mortem: Found[PostMortem | None]
    throughput: Found[Throughput | None]
    cpu: Found[CpuUtilization | None]
    kernels: Found[Timing | None]
    memory_overhead: Found[Overhead | None]
    kernels_overhead: Found[Overhead | None]


class _OfDevice(NamedTuple):
    """The results about the device."""

    use: Found[Utilization | None]
    driver: Found[Device | None]
    energy: Found[Energy | None]
    memory: Found[DeviceMemory | None]
    counted: Found[Counted | None]
    levels: Found[Levels | None]
    pipes: Found[tuple[PipeUse | None, PipeUse | None]]
    sampled: Found[Sampled | None]
    sampled_overhead: Found[Overhead | None]
    traced: Found[Traced | None]


def summarize(recording: Recording) -> Summary:
    """Work out all results of a recording."""
    steps = given(recording)
    run = _of_run(recording, steps)
    device = _of_device(recording, run)
    timed, (fp32_pipe, tensor_pipe) = run.kernels.value, device.pipes.value
    return Summary(
        recording=recording,
        missing=_missing(recording, steps, run, device),
        remarks={**recording.remarks, **run.kernels.remarks, **run.memory.remarks},
        memory=run.memory.value,
        post_mortem=run.post_mortem.value,
        throughput=run.throughput.value,
        lengths=lengths(recording),
        data_wait=rates.data_wait(recording).value,
        cpu=run.cpu.value,
        memory_overhead=run.memory_overhead.value,
        kernels_overhead=run.kernels_overhead.value,
        step_time=None if timed is None else timed.step_time,
        layers=None if timed is None else timed.layers,
        groups=None if timed is None else timed.groups,
        low_utilization=None if timed is None else timed.low_utilization,
        verdict=None if timed is None else timed.verdict,
        utilization=device.use.value,
        device=device.driver.value,
        energy=device.energy.value,
        device_memory=device.memory.value,
        counted=device.counted.value,
        levels=device.levels.value,
        fp32_pipe=fp32_pipe,
        tensor_pipe=tensor_pipe,
        sampled=device.sampled.value,
        sampled_overhead=device.sampled_overhead.value,
        traced=device.traced.value,
    )


def _of_run(recording: Recording, steps: Found[Given]) -> _OfRun:
    throughput = rates.throughput(recording, steps)
    return _OfRun(
        memory=measure(recording),
        post_mortem=examine(recording),
        throughput=throughput,
        cpu=rates.cpu_utilization(recording, throughput.reason),
        kernels=timing(recording, steps, throughput.value),
        memory_overhead=rates.overhead(recording, MEMORY),
        kernels_overhead=rates.overhead(recording, KERNELS),
    )


def _of_device(recording: Recording, run: _OfRun) -> _OfDevice:
    timed, sampled = run.kernels.value, measure_sampled(recording)
    use = at_measured_clock(recording, None if timed is None else timed.utilization)
    driver = device(recording, None if use.value is None else use.value.busy_in_window)
    counted, levels = judged(recording, timed, pipes(sampled.value), of_device(driver.value))
    return _OfDevice(
        use=use,
        driver=driver,
        energy=energy(recording, run.throughput.value),
        memory=measure_device(recording, run.memory.value),
        counted=counted,
        levels=levels,
        pipes=pipe_use(recording, sampled, of_device(driver.value)),
        sampled=sampled,
        sampled_overhead=cost(recording, sampled),
        traced=traced(recording),
    )


def _missing(recording: Recording, steps: Found[Given], run: _OfRun, device: _OfDevice) -> dict[str, str]:
    """Return all reasons and remarks by their place in the report; of two for one place the later one holds."""
    use = device.use.value
    facts = run_facts(recording, steps, run.throughput.value, None if use is None else use.precision)
    return {
        **_reasons(("utilization", device.use), ("device", device.driver), ("energy", device.energy)),
        **_reasons(("device_memory", device.memory), ("post_mortem", run.post_mortem)),
        **_reasons(("run", facts), ("memory", run.memory), ("throughput", run.throughput)),
        **_reasons(("overhead.memory_window", run.memory_overhead), ("overhead.kernels_window", run.kernels_overhead)),
        **recording.missing,  # a reason in the recording replaces one concluded above
        **run.kernels.remarks,
        **_reasons(("", run.kernels), ("utilization.cpu", run.cpu)),
        **run.memory.remarks,
        **_reasons(("counted", device.counted), ("levels", device.levels), ("records", device.traced)),
        **_reasons(("utilization", device.pipes), ("overhead.sampled_window", device.sampled_overhead)),
        **_reasons(("sampled", device.sampled)),
    }


def _reasons(*parts: tuple[str, Found[object]]) -> dict[str, str]:
    """Return the reasons of results, each of which stands under a path in the report."""
    under = {path: reason for place, found in parts for path, reason in found.under(place).items()}
    return {NAMES.get(path, path): reason for path, reason in under.items()}
