"""The part of the machine-readable report that has the sampled level."""

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from tbdprof.facts.counters import PM_FP32_LITE
from tbdprof.results.levels import PipeUse
from tbdprof.results.sampled import (
    ELAPSED,
    LITE_PART,
    WHILE_BUSY,
    Estimate,
    Sampled,
    SampledKernels,
    Use,
)

if TYPE_CHECKING:
    from tbdprof.results.summary import Summary

Json = dict[str, Any]


def pipes(summary: "Summary") -> Json:
    """Return how much of the device's pipes was used while kernels ran."""
    low = None if summary.sampled is None else _low(summary.sampled.while_busy)
    return {"fp32_pipe": {**_use(summary.fp32_pipe), "low": low}, "tensor_pipe": _use(summary.tensor_pipe)}


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


def _use(found: PipeUse | None) -> Json:
    return {"value": None, "level": None} if found is None else asdict(found)


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
