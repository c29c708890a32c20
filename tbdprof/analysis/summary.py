"""All results of a run: its recording, and one optional result per analysis."""

from dataclasses import replace

from tbdprof.analysis.device.device_missing import device_reasons
from tbdprof.analysis.device.driver import clock, device
from tbdprof.analysis.device.energy import energy
from tbdprof.analysis.device.levels import judged, of_device, pipe_use
from tbdprof.analysis.device.sampled import measure as measure_sampled
from tbdprof.analysis.device.sampled import pipes
from tbdprof.analysis.device.sampled_missing import without_sampled
from tbdprof.analysis.device.traced import traced, without_traced
from tbdprof.analysis.memory.breakdown import measure
from tbdprof.analysis.memory.device_memory import measure as measure_device
from tbdprof.analysis.memory.device_memory import reasons as without_device_memory
from tbdprof.analysis.memory.post_mortem import examine
from tbdprof.analysis.memory.post_mortem import reasons as without_post_mortem
from tbdprof.analysis.missing import reasons, without_levels
from tbdprof.analysis.time import throughput as rates
from tbdprof.analysis.time.consumption import lengths
from tbdprof.analysis.time.utilization import at_clock
from tbdprof.analysis.timing import timing
from tbdprof.facts.recording import Recording
from tbdprof.facts.windows import KERNELS, MEMORY, SAMPLED
from tbdprof.results.kernels import Utilization
from tbdprof.results.summary import Summary
from tbdprof.results.timing import Timing


def summarize(recording: Recording) -> Summary:
    """Work out all results of a recording."""
    memory, throughput, sampled = measure(recording), rates.throughput(recording), measure_sampled(recording)
    found = timing(recording, throughput)
    use = None if found is None else _at_measured_clock(recording, found.utilization)
    told = device(recording, None if use is None else use.busy_in_window)
    exact, levels = judged(recording, found, pipes(sampled), of_device(told))
    fp32_pipe, tensor_pipe = pipe_use(sampled, of_device(told))
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
        fp32_pipe=fp32_pipe,
        tensor_pipe=tensor_pipe,
        lengths=lengths(recording),
    )
    return replace(summary, missing=_missing(summary, found))


def _missing(summary: Summary, found: Timing | None) -> dict[str, str]:
    """Return the reason for each None in a summary; a later reason for the same path replaces an earlier one."""
    recording = summary.recording
    overheads = {MEMORY: summary.memory_overhead, KERNELS: summary.kernels_overhead}
    return {
        **device_reasons(recording, summary.device, summary.energy, summary.utilization, summary.throughput),
        **without_device_memory(recording, summary.memory),
        **without_post_mortem(recording, summary.post_mortem),
        **reasons(recording, summary.memory, summary.throughput, summary.cpu, overheads, found),
        **without_levels(recording, summary.counted, summary.levels),
        **without_traced(recording, summary.traced),
        **without_sampled(
            recording, summary.sampled, summary.sampled_overhead, (summary.fp32_pipe, summary.tensor_pipe)
        ),
    }


def _at_measured_clock(recording: Recording, found: Utilization) -> Utilization:
    """Return the utilization, with its value at the clock of the kernels windows if that clock was sampled."""
    measured = clock(recording, KERNELS)
    return at_clock(found, recording.run, None if measured is None else measured.mean_hz)
