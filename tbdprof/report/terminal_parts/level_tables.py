"""The levels side by side: analytic, sampled, counted and the device's own, and how far they agree."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from tbdprof.facts.units import bytes_text, decimal_text, percent_text
from tbdprof.report.terminal_parts.tables import Column, filled, short, title_of, utilization_text
from tbdprof.results.kernels import Counted
from tbdprof.results.levels import KernelLevels, Levels, Pipes
from tbdprof.results.summary import Summary

COLUMNS = (
    Column("share"),
    Column("kernel", "name"),
    Column("FLOP\nanalytic"),
    Column("FLOP\ncounted"),
    Column("FP32 pipe\nsampled"),
    Column("FP32 pipe\ncounted"),
    Column("tensor\nsampled"),
    Column("tensor\ncounted"),
)


def view(summary: Summary, *, full: bool = False) -> list[RenderableType]:
    """Return how far the levels agree; `full` adds each of the longest kernels at each level."""
    found, exact = summary.levels, summary.counted
    parts = [_step(exact)] if exact is not None else []
    if found is not None and full:
        rows = [*map(_cells, found.rows), _whole(found)]
        parts.append(filled("Levels of the longest kernels", COLUMNS, rows, below=list(_agreements(found))))
    elif found is not None and (agreements := list(_agreements(found))):
        parts.append(Group(title_of("Levels"), *map(Text, agreements)))
    return parts


def _step(exact: Counted) -> RenderableType:
    lines = [Text(line) for line in _totals(exact)]
    return Group(title_of("One step, counted"), *lines, *(Text(line, style="red") for line in exact.violations))


def _totals(exact: Counted) -> Iterator[str]:
    used = {kind: flops for kind, flops in exact.tensor_flops.items() if flops}
    tensor = "".join(f", {decimal_text(flops, f'FLOP {kind}')} (tensor)" for kind, flops in used.items())
    counted = "not reported" if exact.fp32_flops is None else decimal_text(exact.fp32_flops, "FLOP fp32")
    analytic = "" if exact.analytic_flops is None else f"; by definition {decimal_text(exact.analytic_flops, 'FLOP')}"
    yield f"{counted}{tensor}{analytic}; {exact.launches} launches"
    if exact.fp32_utilization is not None:
        fp32 = percent_text(exact.fp32_utilization)
        tensor = "" if not exact.tensor_utilization else f", tensor cores {percent_text(exact.tensor_utilization)}"
        yield f"FP32 {fp32}{tensor} of the peak over active time"
    if exact.dram_bytes is not None:
        yield f"{bytes_text(exact.dram_bytes)} to and from the device's memory"
    if exact.unmatched or exact.left_over:
        share = percent_text(exact.unmatched_share)
        yield (
            f"not counted: {len(exact.unmatched)} kernels, {share} of busy time; "
            f"counted, but of no kernel of the run: {exact.left_over} launches"
        )


def _cells(row: KernelLevels) -> tuple[str, ...]:
    return (percent_text(row.share), short(row.key[0]), *_fractions(row.analytic_flop, row.counted_flop, row))


def _whole(found: Levels) -> tuple[str, ...]:
    return ("", "all, by time", *_fractions(found.analytic_flop, found.counted_flop, found))


def _fractions(analytic: float | None, counted: float | None, row: KernelLevels | Levels) -> tuple[str, ...]:
    values = (row.counted.fp32, row.sampled.tensor, row.counted.tensor)
    return (utilization_text(analytic), utilization_text(counted), _range(row.sampled), *map(utilization_text, values))


def _range(pipes: Pipes) -> str:
    """Return the FP32 pipe's use, as a range if its lower bound differs."""
    low, high = utilization_text(pipes.fp32_low), utilization_text(pipes.fp32)
    return high if not low or low == high else f"{low.removesuffix(' %')}–{high}"


def _agreements(found: Levels) -> Iterator[str]:
    for each in found.agreements:
        bound, worst = 100 * each.bound, 100 * each.worst
        yield f"{each.what}: {each.within} of {each.of} within {bound:g} points, the worst {worst:+.1f}"
    device = found.device
    if device.fp32 is not None:
        sampled = "" if found.sampled.fp32 is None else f", sampled {percent_text(found.sampled.fp32)}"
        counted = "" if found.counted.fp32 is None else f", counted {percent_text(found.counted.fp32)}"
        yield f"FP32 pipe while busy: the driver's own {percent_text(device.fp32)}{sampled}{counted}"
