"""The sampled level for the terminal, kernel by kernel."""

from collections.abc import Iterator

from rich.console import RenderableType

from tbdprof.facts.units import percent_text, seconds_text
from tbdprof.report.terminal_parts.sampled_text import fp32_text, use_text
from tbdprof.report.terminal_parts.tables import LEAST_SHOWN, Column, filled, rest_text, short
from tbdprof.results.sampled import Sampled, SampledKernels
from tbdprof.results.summary import Summary

COLUMNS = (
    Column("share"),
    Column("kernel", "name"),
    Column("FP32 pipe"),
    Column("tensor"),
    Column("memory"),
    Column("± points"),
    Column("samples"),
    Column("not reported", "text"),
)
SOME = 0.01  # of kernels' time; a larger share without a use gets a line


def view(summary: Summary, *, full: bool = False) -> list[RenderableType]:
    """Return the table by grid and block if `full`; otherwise the table of kernels has these figures."""
    found = summary.sampled
    if found is None or not found.kernels or not full:
        return []
    shown = [each for each in found.kernels if each.share >= LEAST_SHOWN]
    rest = found.kernels[len(shown) :]
    below = [rest_text(len(rest), sum(each.share for each in rest))] if rest else []
    return [filled("Kernels, sampled", COLUMNS, map(_cells, shown), below=[*below, *_remarks(found)])]


def _cells(each: SampledKernels) -> tuple[str, ...]:
    error = each.use.fp32 or each.use.tensor
    return (
        percent_text(each.share),
        short(each.key[0]),
        fp32_text(each.use),
        use_text(each.use.tensor),
        use_text(each.use.dram),
        "" if error is None else f"{100 * error.error:.1f}",
        f"{each.samples}",
        each.reason or "",
    )


def _remarks(found: Sampled) -> Iterator[str]:
    yield f"a sample every {seconds_text(found.interval_ns)}; the FP32 pipe takes integer arithmetic too: from – to"
    offset = found.offset
    if offset is not None and offset.found_by is not None:
        yield f"the clock of samples was {seconds_text(abs(offset.shift_ns))} off, by {offset.found_by}"
    unknown = sum(each.share for each in found.kernels if each.reason is not None)
    if unknown >= SOME:
        yield f"kernels of {percent_text(unknown)} of the time are too short or too rare for a figure of their own"
