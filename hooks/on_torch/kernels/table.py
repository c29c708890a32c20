"""Write a kernels window's trace as the tables of `tbdprof.facts.records`."""

import itertools

from tbdprof.facts.keys import RemarkOn
from tbdprof.facts.records import Strings
from tbdprof.facts.rows import Table, table
from tbdprof.hooks.on_torch.kernels import gpu_activity
from tbdprof.hooks.on_torch.kernels.gpu_activity import Activity
from tbdprof.hooks.on_torch.session.events import Enter, Leave, Marked, Point, Trace
from tbdprof.hooks.on_torch.session.spans import Spans, calling

_FUSED = (
    "in compiled regions, an operator is in the layer whose weight it reads; what the compiler fused is in no layer "
    "and has no FLOP count, because torch does not report its parts"
)


def build(
    trace: Trace, activity: Activity | None, strings: Strings
) -> tuple[dict[str, Table], list[int], dict[str, str]]:
    """Return a kernels window's tables, the sequence number at the end of each step, and what the tables lack.

    `activity` is a GPU's, or None if there is no GPU or nothing is reported of it. The tables hold only the part of it
    that was launched after the first marker.
    """
    order = itertools.count(1)
    spans = Spans(strings, order, calling(trace))
    marks: list[int] = []
    end_ns = trace.events[-1][0] if trace.events else 0
    for time_ns, event in trace.events:
        if isinstance(event, Enter):
            spans.enter(event.region)
        elif isinstance(event, Leave):
            spans.leave(event.region)
        elif isinstance(event, Marked):
            spans.mark(event.mark, event.thread, time_ns)
            sequence = next(order)
            if event.mark.point is Point.STEP:
                marks.append(sequence)
    spans.finish(end_ns)
    tables = {"span": table("span", spans.table_rows())}
    fused: dict[str, str] = {RemarkOn.KERNEL_LAYERS: _FUSED} if _has_fused(trace) else {}
    if activity is None:
        return tables, marks, fused
    begin_ns = next((time_ns for time_ns, event in trace.events if isinstance(event, Marked)), 0)
    of_gpu, missing = gpu_activity.tables(activity, spans.by_correlation, begin_ns, end_ns, strings)
    return tables | of_gpu, marks, fused | missing


def _has_fused(trace: Trace) -> bool:
    return any(isinstance(event, Enter) and event.region.is_fused for _, event in trace.events)
