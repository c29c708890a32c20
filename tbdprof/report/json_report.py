"""The machine-readable report: schema 1, a contract other tools rely on; `docs/json.md` describes every field.

Fractions are 0 to 1, bytes are bytes, and the names of times give the unit. Kernels, layers and phases are per step. An
unknown value is null, and `missing` has its reason, by its path or the path of an enclosing part (`throughput`). The
memory part's own fields appear there without `memory.`. Null in a row of a list (no layer, no count) means none.

`memory.at_peak` adds up to `independent_peak_bytes`, or to `allocator_peak_bytes` if that is null. The two are equal if
reported blocks explain the framework's own total. `memory.roles_*` do not overlap: they add up to `memory.at_peak`
without its rounding, category by category. `time.phases` add up to `time.step_s`, and the own times of `time_by_layer`
to those of `kernels`.
"""

import json
from collections.abc import Mapping
from typing import Any

from tbdprof.facts.records import Role
from tbdprof.facts.windows import CLEAN, KERNELS, MEMORY, SAMPLED, WARMUP
from tbdprof.report.json_parts import device, device_memory, levels, sampled, time
from tbdprof.report.json_text import json_text
from tbdprof.results.memory import CATEGORIES, Holding, Memory
from tbdprof.results.summary import Summary
from tbdprof.results.time import Overhead

SCHEMA = 1

Json = dict[str, Any]


PARTS = {"kernels": ("kernels", "low_utilization"), "layers": ("time_by_layer",), "memory": ("memory",)}


def render(summary: Summary, part: str | None = None) -> str:
    """Return the report, or one part of it, as one JSON object."""
    whole = document(summary)
    kept = whole if part is None else {name: whole[name] for name in ("schema", *PARTS[part], "missing")}
    return json_text(kept)


def document(summary: Summary) -> Json:
    """Return the report as plain values."""
    peaks, beneath = summary.recording.run.peaks, device_memory.beneath(summary.device_memory)
    return {
        "schema": SCHEMA,
        "run": _run(summary),
        "throughput": _throughput(summary),
        "verdict": time.verdict(summary.verdict),
        "utilization": time.utilization(summary),
        "time": time.time(summary.step_time),
        "records": time.records(summary.traced),
        "time_by_layer": time.layers(summary.layers),
        "memory": None if summary.memory is None else _memory(summary, summary.memory) | beneath,
        "device_memory": device_memory.device_memory(summary.device_memory),
        "post_mortem": device_memory.post_mortem(summary.post_mortem),
        "kernels": time.kernels(summary.groups, peaks),
        "low_utilization": time.low_utilization(summary.low_utilization, peaks),
        "counted": levels.counted(summary.counted),
        "levels": levels.levels(summary.levels),
        "device": device.device(summary.device),
        "energy": device.energy(summary),
        "sampled": sampled.sampled(summary.sampled),
        "overhead": {
            "memory_window": _overhead(summary.memory_overhead),
            "kernels_window": _overhead(summary.kernels_overhead),
            "sampled_window": _overhead(summary.sampled_overhead),
        },
        "missing": summary.missing,
    }


def _run(summary: Summary) -> Json:
    run = summary.recording.run
    steps = {
        name: sum(len(window.table("step")) for window in summary.recording.windows if window.name == name)
        for name in (WARMUP, CLEAN, MEMORY, KERNELS, SAMPLED)
    }
    names = (
        "model",
        "framework",
        "framework_version",
        "device",
        "device_name",
        "threads",
    )
    return {
        **{name: getattr(run, name) for name in names},
        "batch_size": None if summary.batch_size is None else round(summary.batch_size),
        "samples_from": "" if summary.throughput is None else summary.throughput.samples_from,
        "precision": summary.precision,
        "precision_flags": dict(run.precision_flags),
        "options": dict(run.options),
        "seed": run.seed,
        "rank": run.rank,
        "world_size": run.world_size,
        "parameters": summary.parameter_count,
        "whole_parameters": run.whole_parameters or summary.parameter_count,
        "flops_per_sample": None if summary.utilization is None else summary.utilization.flops_per_sample,
        "flops_per_unit": None if summary.utilization is None else dict(summary.utilization.flops_per_unit),
        "update_flops_per_step": None if summary.utilization is None else summary.utilization.update_flops_per_step,
        "settled": run.settled,
        "settled_by": run.settled_by,
        "drifted": None if summary.throughput is None else summary.throughput.drifted,
        "steps": steps,
        "early_steps": summary.early_steps,
        "complete": run.complete,
        "ended_by": run.ended_by,
        "lost_windows": summary.lost_windows,
        "watched_since": run.watched_since,
        "tbdprof_version": run.tbdprof_version,
    }


def _throughput(summary: Summary) -> Json | None:
    throughput = summary.throughput
    if throughput is None:
        return None
    samples = throughput.in_samples(summary.recording.run)
    return {
        "samples_per_s": None if samples is None else samples.per_s,
        "ci95": None if samples is None or samples.interval is None else [*samples.interval],
        "unit": {"name": throughput.unit, "per_s": throughput.rate.per_s},
        "other_units": [
            {"name": other.unit, "per_s": other.rate.per_s, "ci95": other.rate.interval} for other in throughput.others
        ],
        "padding": dict(throughput.padding),
        "windows": [rate.per_s for rate in throughput.windows],
        "data_wait": summary.data_wait,
    }


def _memory(summary: Summary, memory: Memory) -> Json:
    return {
        "device": memory.device,
        "allocator_peak_bytes": memory.allocator_peak_bytes,
        "independent_peak_bytes": memory.independent_peak_bytes,
        "whole_run_peak_bytes": summary.recording.run.whole_run_peak_bytes,
        "outside_allocator_bytes": memory.outside_allocator_bytes,
        "outside_allocator_max": {role.name.lower(): size for role, size in memory.outside_allocator_max.items()},
        "events": memory.events,
        "mismatches": memory.mismatches,
        "violations": list(memory.violations),
        "at_peak": {
            **{name: memory.category_at_peak(name) for name in CATEGORIES},
            "rounding": memory.rounding_at_peak_bytes,
        },
        "max_per_category": {**memory.category_max, "rounding": memory.rounding_max_bytes},
        "roles_at_peak": _by_role(memory.roles_at_peak),
        "roles_max": _by_role(memory.roles_max),
        "at_optimizer_step": None if memory.at_optimizer_step is None else _by_role(memory.at_optimizer_step),
        "top_at_peak": [_holding(holding) for holding in memory.top_at_peak],
        "by_layer": [{"layer": layer, "bytes": size} for layer, size in memory.by_layer],
        "by_device": [
            {"device": each.device, "bytes": each.size_bytes, **each.categories} for each in memory.by_device
        ],
        "lengths": [
            {
                "name": each.name,
                "in_memory_window": list(each.in_memory_window),
                "shortest": each.shortest,
                "longest": each.longest,
            }
            for each in summary.lengths
        ],
    }


def _by_role(sizes: Mapping[Role, int]) -> Json:
    return {role.name.lower(): size for role, size in sizes.items()}


def _holding(holding: Holding) -> Json:
    return {
        "name": holding.name,
        "role": holding.role.name.lower(),
        "layer": holding.layer,
        "operator": holding.operator,
        "shape": None if holding.shape is None else _shape(holding.shape),
        "bytes": holding.size_bytes,
    }


def _shape(text: str) -> object:
    """Return a shape as a list, or the text itself where it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _overhead(overhead: Overhead | None) -> Json | None:
    if overhead is None:
        return None
    return {
        "ratio": overhead.ratio,
        "ci95": None if overhead.interval is None else list(overhead.interval),
    }
