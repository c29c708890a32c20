"""The figures of one recording that a sweep compares."""

from tbdprof.facts.batches import SAMPLES
from tbdprof.facts.consumed import STEPS
from tbdprof.results.memory import CATEGORIES
from tbdprof.results.summary import Summary
from tbdprof.results.sweep import PointFigures
from tbdprof.results.time import Rate


def figures(summary: Summary, batch: int | None = None) -> PointFigures:
    """Return a recording's figures; throughput is in samples where these are known.

    `batch` is the batch size of the point, for a script whose samples were not seen.
    """
    memory, use, run = summary.memory, summary.utilization, summary.recording.run
    rate, unit = _rate(summary, batch)
    fp32 = None if use is None or use.fp32 is None else use.fp32.value
    return PointFigures(
        rate=rate,
        unit=unit,
        step_seconds=None if summary.throughput is None else summary.throughput.step_seconds,
        peak_bytes=None if memory is None else memory.peak_bytes,
        category_bytes=None if memory is None else {name: memory.category_at_peak(name) for name in CATEGORIES},
        busy=None if use is None else use.busy,
        fp32=fp32,
        drifted=None if summary.throughput is None else summary.throughput.drifted,
        complete=run.complete,
        model=run.model,
        framework=f"{run.framework} {run.framework_version}",
        device=run.device_name,
        on_gpu=run.device != "cpu",
        precision=summary.precision,
        threads=run.threads,
        low_utilization=summary.low_utilization,
        cpu=None if summary.cpu is None else summary.cpu.process,
        exposed=_exposed(summary),
        disturbed=None if summary.cpu is None else summary.cpu.disturbed,
    )


def _exposed(summary: Summary) -> float | None:
    step = summary.step_time
    return None if step is None or step.communication is None else step.communication.exposed


def _rate(summary: Summary, batch: int | None) -> tuple[Rate | None, str]:
    found, run = summary.throughput, summary.recording.run
    if found is None:
        return None, run.sample_unit
    in_samples = found.in_samples(run)
    if in_samples is not None:
        return in_samples, run.sample_unit
    if found.unit == STEPS and batch is not None:
        return found.rate.times(batch), SAMPLES
    return found.rate, found.unit
