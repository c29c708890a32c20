"""The part of the machine-readable report that says where the time goes."""

from dataclasses import asdict
from typing import Any

from tbdprof.facts.records import Peaks
from tbdprof.report.json_parts import sampled
from tbdprof.results.device import Traced
from tbdprof.results.kernels import Flop, Group, LayerTime, LowUtilization, headroom, peak_of
from tbdprof.results.summary import Summary
from tbdprof.results.time import CpuUtilization, StepTime, Verdict

IDLE = ("total", "data_wait", "launching", "synchronization", "copies", "communication")

Json = dict[str, Any]


def utilization(summary: Summary) -> Json:
    """Return how much of the device, its floating-point units and the host was used."""
    found = summary.utilization
    return {
        "device_busy": _busy(summary),
        "fp32_flop": _flop(None if found is None else found.fp32),
        **sampled.pipes(summary),
        "cpu": _cpu(summary.cpu),
        "mfu": _flop(None if found is None else found.flop),
    }


def time(found: StepTime | None) -> Json | None:
    """Return a step of the kernels windows by phase, and the shares of it in which the device idled."""
    if found is None:
        return None
    return {
        "step_s": found.step_seconds,
        "phases": {
            phase.name: {"seconds": phase.seconds, "busy_seconds": phase.busy_seconds, "share": phase.share}
            for phase in found.phases
        },
        "idle": {name: getattr(found.idle, name) for name in IDLE},
        "communication": None if found.communication is None else asdict(found.communication),
        "covered": found.covered,
        "kernels_per_step": found.kernels,
        "kernel_mean_s": found.kernel_seconds,
    }


def records(found: Traced | None) -> Json | None:
    """Return how many records of a GPU's kernels were lost, and how far its clock may be off."""
    return None if found is None else {"lost": found.lost, "clock_residual_s": found.residual_ns / 1e9}


def layers(found: tuple[LayerTime, ...] | None) -> list[Json] | None:
    """Return the own times of each layer, per step; kernels in no layer have the layer null."""
    if found is None:
        return None
    return [
        {
            "layer": layer.layer,
            "forward_seconds": layer.forward_seconds,
            "backward_seconds": layer.backward_seconds,
            "other_seconds": layer.other_seconds,
            "share": layer.share,
            "flops": layer.flops,
            "utilization": layer.utilization,
            "calls": layer.calls,
        }
        for layer in found
    ]


def kernels(found: tuple[Group, ...] | None, peaks: Peaks | None) -> list[Json] | None:
    """Return the kernels by name and phase, longest first, with their place under the roofline."""
    return None if found is None else [_group(group, peaks) for group in found]


def low_utilization(found: LowUtilization | None, peaks: Peaks | None) -> Json | None:
    """Return the kernels below the average utilization, and those without a count."""
    if found is None:
        return None
    return {
        "average": found.average,
        "covered": found.covered,
        "rows": [_group(group, peaks) for group in found.rows],
        "uncounted": [_group(group, peaks) for group in found.uncounted],
    }


def verdict(found: Verdict | None) -> Json | None:
    """Return what limits the run, its share of the step, and what to try."""
    if found is None:
        return None
    ends = {name: None if each is None else list(each) for name, each in found.intervals.items()}
    return {
        "bound_by": found.bound_by,
        "share": found.share,
        "sentence": found.sentence,
        "advice": list(found.advice),
        "shares": dict(found.shares),
        "intervals": None if None in ends.values() else ends,
        "candidates": list(found.candidates),
    }


def _busy(summary: Summary) -> Json:
    found = summary.utilization
    if found is None:
        return {"value": None, "in_window": None, "level": None}
    level = "kernels" if summary.recording.run.device.startswith("cuda") else "operators"
    return {"value": found.busy, "in_window": found.busy_in_window, "level": level}


def _flop(found: Flop | None) -> Json:
    if found is None:
        names = ("value", "level", "precision", "coverage", "peak_flops", "peak_source", "bound", "at_clock", "at_most")
        return dict.fromkeys(names)
    return {
        "value": found.value,
        "level": found.level,
        "precision": found.precision,
        "coverage": found.coverage,
        "peak_flops": found.peak_flops_per_s,
        "peak_source": found.peak_source,
        "bound": found.bound,
        "at_clock": None if found.at_clock is None else asdict(found.at_clock),
        "at_most": found.at_most,
    }


def _cpu(found: CpuUtilization | None) -> Json:
    return {
        "value": None if found is None else found.process,
        "others": None if found is None else found.others,
        "ranks": None if found is None else found.ranks,
        "cores": None if found is None else found.cores,
        "affinity_cores": None if found is None else found.affinity_cores,
    }


def _group(group: Group, peaks: Peaks | None) -> Json:
    return {
        "name": group.name,
        "operator": group.operator,
        "operation": group.operation,
        "phase": group.phase,
        "layers": list(group.layers),
        "calls": group.calls,
        "seconds": group.seconds,
        "share": group.share,
        "utilization": group.utilization,
        "precision": group.precision,
        "peak_flops": peak_of(group, peaks),
        "flops": group.flops,
        "moved_bytes": group.moved_bytes,
        "flops_per_byte": group.intensity,
        "flops_per_s": group.flops_per_s,
        "bytes_per_s": group.bytes_per_s,
        "limit": group.limit,
        "headroom": headroom(group, peaks),
        "fused": [asdict(each) for each in group.fused],
    }
