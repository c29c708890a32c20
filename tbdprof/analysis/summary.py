"""All results of a run: its recording, one optional result per analysis, and the reasons for those that are missing."""

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
from tbdprof.analysis.timing import timing
from tbdprof.facts.recording import Recording
from tbdprof.facts.windows import KERNELS, MEMORY
from tbdprof.results.found import Found
from tbdprof.results.summary import Summary

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


def summarize(recording: Recording) -> Summary:
    """Work out all results of a recording."""
    memory, throughput, sampled = measure(recording), rates.throughput(recording), measure_sampled(recording)
    timed = timing(recording, throughput.value)
    found = timed.value
    use = at_measured_clock(recording, None if found is None else found.utilization)
    driver = device(recording, None if use.value is None else use.value.busy_in_window)
    exact, levels = judged(recording, found, pipes(sampled.value), of_device(driver.value))
    pipe_uses = pipe_use(recording, sampled, of_device(driver.value))
    joules = energy(recording, throughput.value)
    device_memory, post_mortem = measure_device(recording, memory.value), examine(recording)
    cpu, records = rates.cpu_utilization(recording, throughput.reason), traced(recording)
    memory_overhead, kernels_overhead = rates.overhead(recording, MEMORY), rates.overhead(recording, KERNELS)
    sampled_overhead = cost(recording, sampled)
    facts = run_facts(recording, throughput.value, None if use.value is None else use.value.precision)
    missing = {
        **_reasons(("utilization", use), ("device", driver), ("energy", joules)),
        **_reasons(("device_memory", device_memory), ("post_mortem", post_mortem)),
        **_reasons(("run", facts), ("memory", memory), ("throughput", throughput)),
        **_reasons(("overhead.memory_window", memory_overhead), ("overhead.kernels_window", kernels_overhead)),
        **recording.missing,  # a reason in the recording replaces one concluded above
        **timed.remarks,
        **_reasons(("", timed), ("utilization.cpu", cpu)),
        **memory.remarks,
        **_reasons(("counted", exact), ("levels", levels), ("records", records)),
        **_reasons(("utilization", pipe_uses), ("overhead.sampled_window", sampled_overhead), ("sampled", sampled)),
    }
    return Summary(
        recording=recording,
        memory=memory.value,
        throughput=throughput.value,
        cpu=cpu.value,
        memory_overhead=memory_overhead.value,
        missing=missing,
        kernels_overhead=kernels_overhead.value,
        utilization=use.value,
        step_time=None if found is None else found.step_time,
        layers=None if found is None else found.layers,
        groups=None if found is None else found.groups,
        low_utilization=None if found is None else found.low_utilization,
        verdict=None if found is None else found.verdict,
        data_wait=rates.data_wait(recording).value,
        device=driver.value,
        energy=joules.value,
        counted=exact.value,
        levels=levels.value,
        sampled=sampled.value,
        traced=records.value,
        sampled_overhead=sampled_overhead.value,
        device_memory=device_memory.value,
        post_mortem=post_mortem.value,
        fp32_pipe=pipe_uses.value[0],
        tensor_pipe=pipe_uses.value[1],
        lengths=lengths(recording),
        remarks={**recording.remarks, **timed.remarks, **memory.remarks},
    )


def _reasons(*parts: tuple[str, Found[object]]) -> dict[str, str]:
    """Return the reasons of results, each of which stands under a path in the report."""
    under = {path: reason for place, found in parts for path, reason in found.under(place).items()}
    return {NAMES.get(path, path): reason for path, reason in under.items()}
