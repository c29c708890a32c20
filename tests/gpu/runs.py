"""Recordings on a card: of the suite as `tbdprof run` makes them, and of a loop of one's own with a plan of its own."""

from collections.abc import Callable
from pathlib import Path

from gpu import setting
from gpu.nets import Net
from gpu.setting import DEVICE

from tbdprof.collect.gpu import context
from tbdprof.facts.file.reading import load
from tbdprof.facts.recording import Recording
from tbdprof.hooks import Setting, about
from tbdprof.launch import suite_run
from tbdprof.launch.choose_instruments import instruments_for
from tbdprof.launch.prepared import prepared
from tbdprof.launch.request import RunRequest
from tbdprof.loop.new_run import new_run
from tbdprof.loop.plan import Plan, Schedule
from tbdprof.loop.profiler import LoopProfiler
from tbdprof.results.summary import Summary

RESULTS = ("throughput", "memory", "utilization", "step_time", "layers", "groups", "low_utilization", "verdict")
EXPLAINED = 0.02

Planned = Callable[[Net], Plan]


def request(folder: Path, precision: str, batch_size: int, framework: str = "torch") -> RunRequest:
    """Return a short run of ResNet-50 that is recorded under its own name."""
    path = folder / f"resnet50-{framework}-{precision}-{batch_size}.tbd"
    return RunRequest(
        "resnet50",
        framework,
        DEVICE,
        setting.size(batch_size, 2),
        setting.precision(precision),
        schedule=Schedule(steps=setting.size(10, 5), warmup=setting.size(10, 2)),
        options=setting.IMAGE,
        threads=setting.THREADS,
        output=path,
        force=True,
    )


def of_suite(asked: RunRequest) -> Recording:
    """Carry out a run as the command line does."""
    return suite_run.run(asked, asked.path())


def recorded(asked: RunRequest) -> Recording:
    """Return the recording an earlier check left, or make it."""
    path = asked.path()
    return load(path) if path.exists() else of_suite(asked)


def own_run(
    build: Callable[[], Net], plan: Planned, name: str, *, precision: str = "fp32", path: Path | None = None
) -> Recording:
    """Profile a loop with a plan that may depend on how fast it is.

    Where it is kept, what lies beneath the allocator is measured before, as `tbdprof run` does.
    """
    beneath = {} if setting.ON_CPU or path is None else context.measure(0, "torch", about("torch").context).facts()
    with prepared("torch", Setting(DEVICE, setting.THREADS, setting.precision(precision), 0)) as hook:
        net = build()
        hook.watch(net.models, net.optimizers)
        run = new_run(
            name, "torch", unit=net.unit, batch_size=net.batch_size, precision=setting.precision(precision), **beneath
        )
        found = instruments_for(DEVICE, "torch")
        with LoopProfiler(hook, run, plan(net), path=path, instruments=found) as profiler:
            while profiler.active:
                profiler.step(net.step())
        return profiler.recording


def memory_conditions(summary: Summary) -> dict[str, bool]:
    """Return what must hold of a report's memory, by name."""
    memory, run, whole = summary.memory, summary.recording.run, summary.device_memory
    if memory is None:
        return {"memory was measured": False}
    explained = None if whole is None else whole.explained
    return {
        "categories and rounding equal the framework's total after every event": memory.mismatches == 0,
        "no identity is violated": not memory.violations,
        "the peak equals the framework's running total": memory.allocator_peak_bytes == memory.independent_peak_bytes,
        "the peak equals max_memory_allocated": memory.allocator_peak_bytes == run.whole_run_peak_bytes,
        "the layers explain the driver's used figure within 2 %": explained is not None
        and abs(explained - 1) <= EXPLAINED,
    }


def complete_conditions(summary: Summary) -> dict[str, bool]:
    """Return whether a report has all its parts, by name."""
    run = summary.recording.run
    parts = {f"{name} is there": getattr(summary, name) is not None for name in RESULTS}
    use = summary.utilization
    return {
        "the run is complete": run.complete,
        **parts,
        "the device's busy fraction is there": use is not None and use.busy is not None,
        "the precision of the FLOPs is the run's": use is not None
        and use.flop is not None
        and use.flop.precision == run.precision,
    }


def figures(summary: Summary) -> dict[str, object]:
    """Return what a report says, in few figures."""
    memory, use, run, whole = summary.memory, summary.utilization, summary.recording.run, summary.device_memory
    rate = summary.throughput
    clocks = {} if summary.device is None else summary.device.sm_clock
    return {
        "device": run.device_name,
        "samples_per_s": None if rate is None else rate.rate.per_s,
        "busy": None if use is None else use.busy,
        "flop_utilization": None if use is None or use.flop is None else use.flop.value,
        "precision": None if use is None or use.flop is None else use.flop.precision,
        "precision_flags": dict(run.precision_flags),
        "peak_bytes": None if memory is None else memory.allocator_peak_bytes,
        "independent_peak_bytes": None if memory is None else memory.independent_peak_bytes,
        "whole_run_peak_bytes": run.whole_run_peak_bytes,
        "mismatches": None if memory is None else memory.mismatches,
        "events": None if memory is None else memory.events,
        "violations": None if memory is None else list(memory.violations)[:5],
        "layers": None if whole is None else {layer.name: layer.size_bytes for layer in whole.layers},
        "used_bytes": None if whole is None else whole.used_bytes,
        "explained": None if whole is None else whole.explained,
        "joules_per_unit": None if summary.energy is None else summary.energy.joules_per_unit,
        "sm_clock_hz": {name: clock.mean_hz for name, clock in clocks.items() if clock is not None},
        "overhead": {
            name: None if found is None else [found.ratio, found.interval]
            for name, found in (("memory", summary.memory_overhead), ("kernels", summary.kernels_overhead))
        },
        "missing": summary.missing_now,
    }
