"""The kernels of a step: those below the average utilization, and each against the roofline.

The table of the former follows tables V and VI of the TBD paper (Zhu et al., IISWC 2018, arXiv:1803.06905).
"""

from collections.abc import Iterator, Mapping, Sequence

from rich.console import RenderableType
from rich.text import Text

from tbdprof.facts.records import Peaks
from tbdprof.facts.units import decimal_text, percent_text, times_text
from tbdprof.report.terminal_parts.sampled_text import cells as sampled_cells
from tbdprof.report.terminal_parts.tables import (
    LEAST_SHOWN,
    Column,
    filled,
    layer_text,
    rest_text,
    short,
    utilization_text,
)
from tbdprof.results.kernels import Group, LowUtilization, headroom, peak_of
from tbdprof.results.sampled import NamedUse
from tbdprof.results.summary import Summary

Uses = Mapping[tuple[str, str], NamedUse]  # sampled use, by name and phase

ROWS = 10
UNCOUNTED_ROWS = 5
LEAST_UNCOUNTED = 0.005  # of busy time; a smaller share gets one line instead of a table
SOURCES = 12  # names in a line; JSON has them all
NOT_KNOWN = "operators that are not known"
NO_SOURCE = "source not reported"
WITHOUT = "without tensor cores"
KERNELS = (
    Column("share"),
    Column("utilization"),
    Column("FP32 pipe"),
    Column("tensor"),
    Column("kernel", "name"),
    Column("operator", "name"),
    Column("phase", "word"),
    Column("layer", "name"),
    Column("more", "word"),
    Column("calls"),
)
ROOFLINE = (
    Column("share"),
    Column("kernel", "name"),
    Column("phase", "word"),
    Column("FLOP/B"),
    Column("GFLOP/s"),
    Column("GB/s"),
    Column("limit", "word"),
    Column("headroom"),
)


def view(summary: Summary, *, full: bool = False) -> list[RenderableType]:
    """Return the tables of kernels: those below the average and those without a count; `full` adds all others."""
    low, uses = summary.low_utilization, {} if summary.sampled is None else summary.sampled.by_name
    if low is None:
        listed = summary.groups or ()
        return [_table("Kernels, longest first", listed, uses, None if full else ROWS)] if listed else []
    peaks = summary.recording.run.peaks
    parts = [_below(low, uses, None if full else ROWS, peaks)] if low.rows else []
    if full and (above := _above(summary.groups or (), low)):
        parts.append(_table("Kernels at the average or above", above, uses, None, below=_other_peaks(above, peaks)))
    if low.uncounted:
        parts.append(_uncounted(low.uncounted, uses, peaks, full=full))
    if full and summary.groups:
        parts.append(_roofline(summary.groups, peaks))
    return parts


def _below(low: LowUtilization, uses: Uses, most: int | None, peaks: Peaks | None) -> RenderableType:
    title = f"Kernels below the average utilization of {percent_text(low.average)}"
    counted = f"({percent_text(low.covered)} of busy time counted)"
    return _table(f"{title} {counted}", low.rows, uses, most, below=_other_peaks(low.rows, peaks))


def _other_peaks(groups: Sequence[Group], peaks: Peaks | None) -> list[str]:
    """Return a line on the peak for kernels that tensor cores cannot compute."""
    if peaks is None:
        return []
    others = {
        group.precision: peak
        for group in groups
        if (peak := peak_of(group, peaks)) is not None and peak != peaks.flops_per_s.get(group.precision or "")
    }
    listed = ", ".join(f"{precision} {decimal_text(peak, 'FLOP/s')}" for precision, peak in others.items())
    compared = f"kernels other than matmuls and convolutions are compared with the peak {WITHOUT}"
    return [f"{compared}: {listed}"] if listed else []


def _uncounted(groups: Sequence[Group], uses: Uses, peaks: Peaks | None, *, full: bool) -> RenderableType:
    if full or groups[0].share >= LEAST_UNCOUNTED:
        most, below = None if full else UNCOUNTED_ROWS, _without_a_peak(groups, peaks)
        return _table("Kernels without a count", groups, uses, most, LEAST_UNCOUNTED, below)
    share = percent_text(sum(group.share for group in groups))
    return Text(f"Kernels without a count: {len(groups)}, together {share} of busy time")


def _without_a_peak(groups: Sequence[Group], peaks: Peaks | None) -> list[str]:
    """Return a line on kernels with a FLOP count for which no peak is known."""
    of_products = {} if peaks is None else peaks.flops_per_s
    counted = {
        f"{group.precision} {WITHOUT}" if group.precision in of_products else group.precision
        for group in groups
        if group.precision is not None and group.flops
    }
    return [f"some have a count, but their peak is not known: {', '.join(sorted(counted))}"] if counted else []


def _above(groups: Sequence[Group], low: LowUtilization) -> list[Group]:
    elsewhere = {(group.name, group.phase) for group in (*low.rows, *low.uncounted)}
    return [group for group in groups if (group.name, group.phase) not in elsewhere]


def _table(
    title: str,
    groups: Sequence[Group],
    uses: Uses,
    most: int | None,
    least: float = LEAST_SHOWN,
    below: Sequence[str] = (),
) -> RenderableType:
    """Return a table of all groups, or of the first `most` with at least a share `least` of busy time."""
    shown = groups if most is None else [group for group in groups[:most] if group.share >= least] or groups[:1]
    rest = groups[len(shown) :]
    others = [rest_text(len(rest), sum(group.share for group in rest))] if rest else []
    rows = [_cells(group, uses.get((group.name, group.phase))) for group in shown]
    sources = [_sources(group) for group in shown if group.fused]
    return filled(title, KERNELS, rows, below=[*others, *sources, *below])


def _sources(group: Group) -> str:
    """Return a line on the operators that a compiler made a kernel of, or all kernels of a graph."""
    first, *others = group.fused
    operators = list(dict.fromkeys(name for each in group.fused for name in each.operators or (NOT_KNOWN,)))
    nodes = list(dict.fromkeys(name for each in group.fused for name in each.nodes or ()))
    subject = f"{first.name} and {len(others)} more" if others else first.name
    return f"{subject}: made of {_most(operators)}" + (f"; source nodes {_most(nodes)}" if nodes else "")


def _most(names: Sequence[str]) -> str:
    left = len(names) - SOURCES
    return ", ".join(names[:SOURCES]) + (f" and {left} more" if left > 0 else "")


def _cells(group: Group, use: NamedUse | None) -> tuple[str, ...]:
    return (
        percent_text(group.share),
        utilization_text(group.utilization),
        *sampled_cells(use),
        short(group.name),
        "" if group.operator == group.name else group.operator,
        group.phase,
        layer_text(group.layers[0]) if group.layers else "",
        f"+{len(group.layers) - 1}" if len(group.layers) > 1 else "",
        f"{group.calls:g}",
    )


def _roofline(groups: Sequence[Group], peaks: Peaks | None) -> RenderableType:
    placed = [group for group in groups if group.flops_per_s or group.bytes_per_s]
    shown = [group for group in placed if group.share >= LEAST_SHOWN]
    rest = [group for group in placed if group.share < LEAST_SHOWN]
    below = [rest_text(len(rest), sum(group.share for group in rest))] if rest else []
    rows = [_against_roof(group, peaks) for group in shown]
    return filled("Roofline", ROOFLINE, rows, below=[*below, *_ceilings(peaks)])


def _against_roof(group: Group, peaks: Peaks | None) -> tuple[str, ...]:
    room = headroom(group, peaks)
    return (
        percent_text(group.share),
        short(group.name),
        group.phase,
        "" if group.intensity is None else f"{group.intensity:.2f}",
        "" if group.flops_per_s is None else f"{group.flops_per_s / 1e9:.2f}",
        "" if group.bytes_per_s is None else f"{group.bytes_per_s / 1e9:.2f}",
        group.limit or "",
        "" if room is None else times_text(room) if room > 1 else "none",
    )


def _ceilings(peaks: Peaks | None) -> Iterator[str]:
    if peaks is None:
        return
    for precision, flops in peaks.flops_per_s.items():
        yield f"ceiling {precision}: {decimal_text(flops, 'FLOP/s')} ({peaks.sources.get(precision, NO_SOURCE)})"
    for precision, flops in (peaks.vector_flops_per_s or {}).items():
        if flops != peaks.flops_per_s.get(precision):
            source = peaks.sources.get(f"vector {precision}", NO_SOURCE)
            yield f"ceiling {precision} {WITHOUT}: {decimal_text(flops, 'FLOP/s')} ({source})"
    if peaks.bytes_per_s is not None:
        source = peaks.sources.get("memory", NO_SOURCE)
        yield f"ceiling memory: {decimal_text(peaks.bytes_per_s, 'B/s')} ({source})"
