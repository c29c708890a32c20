"""The kernels of counted steps, each with its span: kernels that a GPU reported, or operators of the CPU."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tbdprof.analysis.spans import SpanTree
from tbdprof.facts.arrays import Bools, Floats, Ints, Rows, Texts
from tbdprof.facts.records import KernelKind, SpanKind
from tbdprof.facts.rows import Table


@dataclass(frozen=True, slots=True)
class Places:
    """The kernels of counted steps, ordered by start; `span` is a row of the tree, -1 if none."""

    name: Texts
    span: Rows
    step: NDArray[np.int32]  # index among the counted steps
    moves: Bools  # copies and memsets, which are no kernels
    copies: Bools
    grid: Texts
    block: Texts
    thread_or_stream: Ints
    start_ns: Ints
    end_ns: Ints
    own_ns: Ints
    moved_bytes: Floats


def _steps_of(time_ns: Ints, begins: Ints, ends: Ints) -> NDArray[np.int32]:
    """Return the index of the step that contains each time, or -1 if there is none."""
    place = np.searchsorted(begins, time_ns, side="right") - 1
    return np.where((place >= 0) & (time_ns < ends[place]), place, -1).astype(np.int32)


def _counted(start_ns: Ints, step: NDArray[np.int32]) -> Rows:
    """Return the indices of the kernels that belong to a step, ordered by start."""
    kept = np.flatnonzero(step >= 0).astype(np.int32)
    ordered: Rows = kept[np.argsort(start_ns[kept], kind="stable")]
    return ordered


def of_device(rows: Table, tree: SpanTree, steps: Table) -> Places:
    """Return the kernels of a GPU that were launched in counted steps, or between two of them.

    A GPU runs several steps behind the host, so the launch decides. A kernel without a reported launch belongs to the
    step in which it starts.
    """
    begins, ends = steps["start_ns"], steps["end_ns"]
    asked_ns = np.where(rows["launch_ns"] >= 0, rows["launch_ns"], rows["start_ns"])
    step = _steps_of(asked_ns, begins, np.append(begins[1:], ends[-1:]))
    kept = _counted(rows["start_ns"], step)
    start, end, moved, kind = (rows[name][kept] for name in ("start_ns", "end_ns", "moved_bytes", "kind"))
    return Places(
        name=rows["name"][kept],
        span=_spans_of(rows, kept, tree),
        step=step[kept],
        moves=kind != KernelKind.KERNEL,
        copies=kind == KernelKind.COPY,
        grid=rows["grid"][kept],
        block=rows["block"][kept],
        thread_or_stream=rows["stream"][kept],
        start_ns=start,
        end_ns=end,
        own_ns=np.maximum(end - start, 0),
        moved_bytes=np.where(moved >= 0, moved, np.nan),
    )


def _spans_of(rows: Table, kept: Rows, tree: SpanTree) -> Rows:
    """Return the row of each kernel's span; if none was reported, the innermost one open on its thread at its launch.

    If no launch comes from a thread with spans, launches and spans number threads differently. Then the span is the
    only operator open at the launch.
    """
    span = rows["span"][kept]
    found, lacks = tree.index(span), span < 0
    del span
    if not lacks.any():
        return found
    launched, thread = rows["launch_ns"][kept], rows["thread"][kept]
    asks = lacks & (launched >= 0) & (thread != -1)
    known = np.flatnonzero(asks & np.isin(thread, tree.rows["thread"]))
    found[known] = tree.open_at(launched[known], thread[known])
    if not len(known):
        found[asks] = _only_open_at(launched[asks], tree)
    return found


def _only_open_at(time_ns: Ints, tree: SpanTree) -> Rows:
    """Return the innermost operator open at each time, or -1 if none or several threads have one open."""
    is_operator = tree.rows["kind"] == SpanKind.OPERATOR
    found, several = np.full(len(time_ns), -1, np.int32), np.zeros(len(time_ns), bool)
    for thread in np.unique(tree.rows["thread"][is_operator]) if len(time_ns) else ():
        here = tree.nearest(tree.open_at(time_ns, np.full(len(time_ns), thread)), is_operator)
        several |= (found >= 0) & (here >= 0)
        found = np.where(here >= 0, here, found)
    return np.where(several, np.int32(-1), found)


def of_operators(tree: SpanTree, steps: Table) -> Places:
    """Return the operators of the CPU that start in counted steps."""
    operators = np.flatnonzero(tree.rows["kind"] == SpanKind.OPERATOR).astype(np.int32)
    begun = tree.rows["start_ns"][operators]
    step = _steps_of(begun, steps["start_ns"], steps["end_ns"])
    kept = _counted(begun, step)
    del begun
    spans, step = operators[kept], step[kept]
    del operators, kept
    start, end, thread = (tree.rows[name][spans] for name in ("start_ns", "end_ns", "thread"))
    return Places(
        name=tree.name(spans),
        span=spans,
        step=step,
        moves=_everywhere(False, spans),
        copies=_everywhere(False, spans),
        grid=_everywhere(np.int32(-1), spans),
        block=_everywhere(np.int32(-1), spans),
        thread_or_stream=thread,
        start_ns=start,
        end_ns=end,
        own_ns=_own(tree, spans, start, end, thread),
        moved_bytes=_everywhere(np.nan, spans),
    )


def _everywhere(value: Any, rows: Rows) -> NDArray[Any]:
    """Return one value for each row, which takes the memory of one."""
    return np.broadcast_to(value, len(rows))


def _own(tree: SpanTree, spans: Rows, start: Ints, end: Ints, thread: Ints) -> Ints:
    """Return each operator's duration minus the time of the operators inside it on the same thread."""
    place = np.full(len(tree.rows), -1, np.int32)
    place[spans] = np.arange(len(spans))
    around = tree.nearest(tree.above(spans), tree.rows["kind"] == SpanKind.OPERATOR)
    outer = np.where(around >= 0, place[around], np.int32(-1))
    nested = np.flatnonzero((outer >= 0) & (thread[outer] == thread))
    outer = outer[nested]
    within = np.minimum(end[nested], end[outer]) - np.maximum(start[nested], start[outer])
    taken = np.zeros(len(spans), np.int64)
    np.add.at(taken, outer, np.maximum(within, 0))  # whole nanoseconds, however many
    own: Ints = end - start
    own -= taken
    return np.maximum(own, 0, out=own)
