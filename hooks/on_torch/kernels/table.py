"""A kernels window's trace, written as the tables of `tbdprof.facts.records`."""

import itertools

from tbdprof.facts.records import Strings, Table, table
from tbdprof.hooks.on_torch.kernels import gpu_activity
from tbdprof.hooks.on_torch.kernels.gpu_activity import Activity
from tbdprof.hooks.on_torch.session.events import Enter, Leave, Marked, Point, Trace
from tbdprof.hooks.on_torch.session.spans import Spans, calling


def build(
    trace: Trace, activity: Activity | None, strings: Strings
) -> tuple[dict[str, Table], list[int], dict[str, str]]:
    """Return the tables of a kernels window, the sequence at each of its steps' ends, and what is not in them.

    `activity` is a GPU's, None: there is none, or nothing is told of it. Of it only what was asked for from the first
    marker on is in the tables.
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
    if activity is None:
        return tables, marks, {}
    begin_ns = next((time_ns for time_ns, event in trace.events if isinstance(event, Marked)), 0)
    of_gpu, missing = gpu_activity.tables(activity, spans.by_correlation, begin_ns, end_ns, strings)
    return tables | of_gpu, marks, missing
