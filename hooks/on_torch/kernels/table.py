"""Write a kernels window's trace as the tables of `tbdprof.facts.records`."""

import itertools
import json
from collections.abc import Iterable, Sequence

from tbdprof.facts.keys import RemarkOn
from tbdprof.facts.records import Strings
from tbdprof.facts.rows import FusedRow, Table, table
from tbdprof.facts.work import PRODUCTS
from tbdprof.hooks.on_torch.flops import works
from tbdprof.hooks.on_torch.kernels import gpu_activity
from tbdprof.hooks.on_torch.kernels.gpu_activity import Activity
from tbdprof.hooks.on_torch.session.events import (
    Enter,
    Fused,
    Leave,
    Marked,
    Point,
    Region,
    Scope,
    Trace,
    surroundings,
)
from tbdprof.hooks.on_torch.session.spans import Spans, calling

_FUSED = (
    "in compiled regions, an operator is in the layer whose weight it reads; what the compiler fused is in no layer "
    "and has no FLOP count, because torch does not report the sizes of its parts"
)
_NO_NODES = (
    "; {} of {} fused kernels do not say their source nodes: those in C++ have only their operators, in their names"
)
_UNCOUNTED = (
    "{} of {} products are not counted ({}): their arguments do not say how much they compute, as of sparse data"
)
_SEVERAL = "; the names of {} of them can be read in no way or in several, so that their operators are not known"


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
    regions = [event.region for _, event in trace.events if isinstance(event, Enter)]
    tables = {"span": table("span", spans.table_rows())}
    if kernels := _fused(regions):
        tables["fused"] = table("fused", [_row(each, strings) for each in kernels])
    remarks = (_remarks(kernels) if any(each.is_fused for each in regions) else {}) | _uncounted(regions)
    if activity is None:
        return tables, marks, remarks
    begin_ns = next((time_ns for time_ns, event in trace.events if isinstance(event, Marked)), 0)
    of_gpu, missing = gpu_activity.tables(activity, spans.by_correlation, begin_ns, end_ns, strings)
    return tables | of_gpu, marks, remarks | missing


def _uncounted(regions: Iterable[Region]) -> dict[str, str]:
    """Return how many matmuls, convolutions and the like have no count, and lie in no operator that has one."""
    of_kind = [each for each in regions if each.scope is Scope.FUNCTION and each.operation in PRODUCTS]
    products = [each for each in of_kind if works.is_product(each.name)]
    lost = [each for each in products if not any(around.work for around in (each, *surroundings(each)))]
    names = ", ".join(sorted({each.name for each in lost}))
    return {RemarkOn.KERNEL_COUNTS: _UNCOUNTED.format(len(lost), len(products), names)} if lost else {}


def _fused(regions: Iterable[Region]) -> list[Fused]:
    """Return each fused kernel of the regions once."""
    return list(dict.fromkeys(each for region in regions for each in region.fused))


def _row(kernel: Fused, strings: Strings) -> FusedRow:
    return FusedRow(strings.add(kernel.kernel), _listed(kernel.operators, strings), _listed(kernel.nodes, strings))


def _remarks(kernels: Sequence[Fused]) -> dict[str, str]:
    """Return what is not known of fused kernels."""
    unknown = sum(each.operators is None for each in kernels)
    silent = sum(each.nodes is None for each in kernels)
    nodes = _NO_NODES.format(silent, len(kernels)) if silent else ""
    return {RemarkOn.KERNEL_LAYERS: _FUSED + nodes + (_SEVERAL.format(unknown) if unknown else "")}


def _listed(names: Sequence[str] | None, strings: Strings) -> int:
    return -1 if names is None else strings.add(json.dumps(names))
