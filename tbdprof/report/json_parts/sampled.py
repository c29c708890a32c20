"""The part of the machine-readable report that has the sampled level."""

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from tbdprof.analysis.device.sampled_missing import ELAPSED, WHILE_BUSY, told
from tbdprof.facts.counters import PM_FP32_LITE
from tbdprof.results.levels import Pipes
from tbdprof.results.sampled import (
    LITE_PART,
    Estimate,
    Sampled,
    SampledKernels,
    Use,
)

Json = dict[str, Any]


def pipes(found: Sampled | None, device: Pipes) -> Json:
    """Return how much of the device's pipes was used while kernels ran: as sampled, or else as the driver tells it."""
    fp32, tensor = (_leveled(each) for each in told(found, device))
    return {"fp32_pipe": {**fp32, "low": None if found is None else _low(found.while_busy)}, "tensor_pipe": tensor}


def sampled(found: Sampled | None) -> Json | None:
    """Return what was sampled, over the whole window and by kernel."""
    if found is None:
        return None
    offset = found.offset
    return {
        "samples": found.samples,
        "lost": found.lost,
        "interval_s": found.interval_ns / 1e9,
        "kernels_busy": found.busy,
        "elapsed": {name: found.elapsed.get(counter) for name, counter in ELAPSED.items()},
        "while_busy": {
            **{name: found.while_busy.get(counter) for name, counter in WHILE_BUSY.items()},
            "fp32_pipe_low": _low(found.while_busy),
        },
        "clock_residual_s": None if found.residual_ns is None else found.residual_ns / 1e9,
        "offset": None if offset is None else {"seconds": offset.shift_ns / 1e9, "found_by": offset.found_by},
        "residuals": dict(found.residuals),
        "kernels": [_kernels(each) for each in found.kernels],
        "violations": list(found.violations),
    }


def _leveled(use: tuple[float, str] | None) -> Json:
    return {"value": None, "level": None} if use is None else {"value": use[0], "level": use[1]}


def _low(use: Mapping[str, float]) -> float | None:
    return LITE_PART * use[PM_FP32_LITE] if PM_FP32_LITE in use else None


def _kernels(found: SampledKernels) -> Json:
    return {
        **dict(zip(("name", "grid", "block"), found.key, strict=True)),
        "calls": found.calls,
        "seconds": found.seconds,
        "share": found.share,
        **{each.name: _estimate(getattr(found.use, each.name)) for each in fields(Use)},
        "samples": found.samples,
        "covered": found.covered,
        "reason": found.reason,
    }


def _estimate(found: Estimate | None) -> Json | None:
    return None if found is None else asdict(found)
