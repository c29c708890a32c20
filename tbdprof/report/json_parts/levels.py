"""The part of the machine-readable report that has exact counts and the levels side by side."""

from typing import Any

from tbdprof.results.kernels import Counted, CountedKernels, Key
from tbdprof.results.levels import Agreement, KernelLevels, Levels, Pipes

Json = dict[str, Any]


def counted(found: Counted | None) -> Json | None:
    """Return Nsight Compute's counts of one step."""
    if found is None:
        return None
    return {
        "launches": found.launches,
        "fp32_flops": found.fp32_flops,
        "tensor_flops": dict(found.tensor_flops),
        "dram_bytes": found.dram_bytes,
        "analytic_flops": found.analytic_flops,
        "fp32_utilization": found.fp32_utilization,
        "tensor_utilization": found.tensor_utilization,
        "flop_utilization": found.flop_utilization,
        "kernels": [_kernels(each) for each in found.kernels],
        "unmatched": [_named(key) for key in found.unmatched],
        "unmatched_share": found.unmatched_share,
        "left_over": found.left_over,
        "violations": list(found.violations),
    }


def levels(found: Levels | None) -> Json | None:
    """Return the longest kernels at each level, and how many agree."""
    if found is None:
        return None
    return {
        "rows": [_row(row) for row in found.rows],
        "agreements": [_agreement(each) for each in found.agreements],
        "whole": {
            "flop": {"analytic": found.analytic_flop, "counted": found.counted_flop},
            "fp32_pipe": {**_pipe("fp32", found), "device": found.device.fp32},
            "tensor_pipe": {**_pipe("tensor", found), "device": found.device.tensor},
        },
    }


def _named(key: Key) -> Json:
    return dict(zip(("name", "grid", "block"), key, strict=True))


def _kernels(each: CountedKernels) -> Json:
    names = (
        "calls",
        "seconds",
        "share",
        "launches",
        "fp32_flops",
        "dram_bytes",
        "fp32_pipe",
        "tensor_pipe",
        "fp32_utilization",
        "tensor_utilization",
        "flop_utilization",
    )
    return {
        **_named(each.key),
        **{name: getattr(each, name) for name in names},
        "tensor_flops": dict(each.tensor_flops),
    }


def _row(row: KernelLevels) -> Json:
    return {
        **_named(row.key),
        "seconds": row.seconds,
        "share": row.share,
        "is_product": row.is_product,
        "flop": {"analytic": row.analytic_flop, "counted": row.counted_flop, "difference": row.flop_difference},
        "fp32_pipe": {**_pipe("fp32", row), "difference": row.fp32_difference},
        "tensor_pipe": {**_pipe("tensor", row), "difference": row.tensor_difference},
    }


def _pipe(part: str, row: KernelLevels | Levels) -> Json:
    def of(pipes: Pipes) -> float | None:
        value: float | None = getattr(pipes, part)
        return value

    low = {"sampled_low": row.sampled.fp32_low} if part == "fp32" else {}
    return {**low, "sampled": of(row.sampled), "counted": of(row.counted)}


def _agreement(each: Agreement) -> Json:
    return {"what": each.what, "within": each.within, "of": each.of, "bound": each.bound, "worst": each.worst}
