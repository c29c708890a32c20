"""The figures of a run for Prometheus, as text that its textfile collector and every reader of OpenMetrics takes.

The format is that of OpenMetrics 1.0 (https://prometheus.io/docs/specs/om/open_metrics_spec/) as far as the older text
format has it too, which the collector reads: every metric is a gauge. Names end in their unit. What was not measured is
left out. Each figure is one of the JSON report, at the path that the table says, or is said to be another one.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from tbdprof.facts.file.placing import new
from tbdprof.report.json_report import document
from tbdprof.report.plain import plain
from tbdprof.results.memory import CATEGORIES
from tbdprof.results.summary import Summary

UNITS = ("bytes", "celsius", "hertz", "joules", "ratio", "seconds", "watts")
Labels = dict[str, str]
Samples = list[tuple[Labels, float]]  # the values of a metric, each with the labels that are its own


class Metric(NamedTuple):
    """A metric, and where the JSON report has its figures; the label has the names that stand for the star."""

    name: str
    says: str
    path: str
    label: str = ""


METRICS = (
    Metric("complete", "1 if all planned windows were recorded.", "run.complete"),
    Metric("settled", "1 if the time per step became steady in the warm-up.", "run.settled"),
    Metric("steps", "Recorded steps.", "run.steps.*", "window"),
    Metric("batch_size", "Samples of a step.", "run.batch_size"),
    Metric("parameters", "Values that are trained.", "run.parameters"),
    Metric("flops_per_sample", "FLOPs of matrix products and convolutions for a sample.", "run.flops_per_sample"),
    Metric("samples_per_second", "Samples per second in the clean windows.", "throughput.samples_per_s"),
    Metric("padding_ratio", "Padding in what was computed.", "throughput.padding.*", "unit"),
    Metric("data_wait_ratio", "Part of a clean step in which the loop waits for batches.", "throughput.data_wait"),
    Metric("step_share_ratio", "Part of a step that this takes, from the verdict.", "verdict.shares.*", "share"),
    Metric("device_busy_ratio", "Time in kernels over that of a clean step.", "utilization.device_busy.value"),
    Metric("fp32_flop_ratio", "FLOPs in FP32 over active time and peak.", "utilization.fp32_flop.value"),
    Metric("mfu_ratio", "FLOPs in the run's precision over active time and peak.", "utilization.mfu.value"),
    Metric("fp32_pipe_ratio", "Time in which the FP32 pipe was active.", "utilization.fp32_pipe.value"),
    Metric("tensor_pipe_ratio", "Time in which the tensor pipe was active.", "utilization.tensor_pipe.value"),
    Metric("cpu_ratio", "CPU time of the process over that of its cores.", "utilization.cpu.value"),
    Metric("cpu_others_ratio", "CPU time of other processes over that of the cores.", "utilization.cpu.others"),
    Metric("watched_step_seconds", "A step of the kernels windows.", "time.step_s"),
    Metric("phase_seconds", "Time of a phase in a watched step.", "time.phases.*.seconds", "phase"),
    Metric("phase_busy_seconds", "Busy time of a phase in a watched step.", "time.phases.*.busy_seconds", "phase"),
    Metric("idle_ratio", "Part of a watched step in which the device idles.", "time.idle.*", "reason"),
    Metric("communication_seconds", "Communication in a watched step.", "time.communication.seconds"),
    Metric("kernels_per_step", "Kernels of a watched step, operators on a CPU.", "time.kernels_per_step"),
    Metric("memory_allocator_peak_bytes", "Peak of the blocks reported.", "memory.allocator_peak_bytes"),
    Metric("memory_independent_peak_bytes", "Peak of the framework's own total.", "memory.independent_peak_bytes"),
    Metric("memory_whole_run_peak_bytes", "The framework's peak over the run.", "memory.whole_run_peak_bytes"),
    Metric("memory_at_peak_bytes", "Memory by category at the peak.", "memory.at_peak.*", "category"),
    Metric("memory_largest_bytes", "The largest size of a category.", "memory.max_per_category.*", "category"),
    Metric("memory_role_at_peak_bytes", "Memory by role at the peak.", "memory.roles_at_peak.*", "role"),
    Metric("memory_role_largest_bytes", "The largest size of a role.", "memory.roles_max.*", "role"),
    Metric("memory_mismatches", "Checks of the memory's sums that failed.", "memory.mismatches"),
    Metric("device_memory_capacity_bytes", "Memory of the device.", "device_memory.total"),
    Metric("device_memory_used_bytes", "Memory in use by the driver's account.", "device_memory.used"),
    Metric("driver_busy_ratio", "The driver's own figure in the clean windows.", "device.driver_busy.clean"),
    Metric("sm_clock_hertz", "Mean clock of the processors.", "device.sm_clock.*.mean_hz", "window"),
    Metric("temperature_celsius", "The highest temperature.", "device.most_celsius.*", "window"),
    Metric("energy_per_unit_joules", "Energy of a unit of work in the clean windows.", "energy.joules_per_unit"),
    Metric("power_watts", "Mean power in the clean windows.", "energy.watts"),
    Metric("cost_ratio", "Time of a watched step over that of a clean one.", "overhead.*.ratio", "window"),
)
_CATEGORY_OF = {role.name.lower(): name for name, roles in CATEGORIES.items() for role in roles}


def write(summary: Summary, path: Path, *, force: bool = False) -> None:
    """Write the metrics, at once; raise UsageError if the target exists (unless `force`) or cannot be written."""
    with new(path, force=force) as part:
        part.write_text(render(summary), encoding="utf-8", newline="\n")


def render(summary: Summary) -> str:
    """Return the metrics; each has the labels `model` and `framework`, and `rank` where there is one."""
    report = document(summary)
    run = report["run"]
    own = {"model": run["model"], "framework": run["framework"]}
    own |= {} if run["rank"] is None else {"rank": str(run["rank"])}
    lines = list[str]()
    for name, says, samples in (*_of_run(summary, report), *_of_table(report)):
        lines += _metric(name, says, [(own | labels, value) for labels, value in samples])
    return "\n".join([*lines, "# EOF\n"])


def _of_run(summary: Summary, report: Mapping[str, Any]) -> Iterator[tuple[str, str, Samples]]:
    """Yield what no single number of the JSON report is."""
    run, rates = report["run"], report["throughput"]
    about = ("framework_version", "device", "device_name", "precision", "tbdprof_version")
    yield "run_info", "What was run; always 1.", [({name: run[name] or "" for name in about}, 1)]
    begun, step = Samples(), Samples()
    with suppress(ValueError, OverflowError):  # an older file, or somebody else's
        begun.append(({}, datetime.fromisoformat(summary.recording.run.started).timestamp()))
    yield "started_timestamp_seconds", "When the run began, as seconds since 1970.", begun
    units = [] if rates is None else [rates["unit"], *rates["other_units"]]
    by_unit = {each["name"]: each["per_s"] for each in units}
    named = [({"unit": name}, value) for name, value in by_unit.items()]
    yield "units_per_second", "Units of work per second in the clean windows.", named
    if summary.throughput is not None:
        step.append(({}, summary.throughput.step_seconds))
    yield "step_seconds", "A step of the clean windows.", step


def _of_table(report: Mapping[str, Any]) -> Iterator[tuple[str, str, Samples]]:
    for metric in METRICS:
        found = Samples()
        for star, value in _at(report, metric.path.split(".")):
            labels = {metric.label: star} if metric.label else {}
            if metric.label == "role":
                labels["category"] = _CATEGORY_OF[star]
            found.append((labels, value))
        yield metric.name, metric.says, found


def _at(value: Any, path: Sequence[str], star: str = "") -> Iterator[tuple[str, float]]:
    """Yield the numbers at a path, each with the name that stands for the star."""
    if not path:
        if isinstance(value, int | float) and math.isfinite(value):
            yield star, float(value)
    elif isinstance(value, Mapping):
        for name in value if path[0] == "*" else [path[0]]:
            yield from _at(value.get(name), path[1:], name if path[0] == "*" else star)


def _metric(name: str, says: str, samples: Sequence[tuple[Labels, float]]) -> Iterator[str]:
    if not samples:
        return
    whole, unit = f"tbdprof_{name}", name.rpartition("_")[2]
    yield f"# HELP {whole} {says}"
    yield f"# TYPE {whole} gauge"
    if unit in UNITS:
        yield f"# UNIT {whole} {unit}"
    by_labels = {",".join(f'{label}="{_escaped(text)}"' for label, text in each.items()): n for each, n in samples}
    for written, value in by_labels.items():
        yield f"{whole}{{{written}}} {int(value) if value == int(value) else value}"


def _escaped(text: str) -> str:
    """Return a text for between quotes; what cannot be printed is its escape."""
    return plain(str(text)).replace("\\", "\\\\").replace('"', '\\"')
