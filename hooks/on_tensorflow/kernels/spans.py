"""The operators of a kernels window as spans, each inside a span for its layer.

An operator that runs inside another on the same thread lies in that operator's span.
"""

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from tbdprof.facts import work
from tbdprof.facts.records import Operation, SpanKind, Strings, Table, table
from tbdprof.hooks.on_tensorflow.operators.node import Node

Row = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Ran:
    """Something that ran on a thread, and what it is for."""

    name: str
    thread: int
    start_ns: int
    end_ns: int
    node: Node


def spans(ran: Sequence[Ran], strings: Strings) -> Table:
    """Return the table of spans."""
    rows: list[Row] = []
    open_on: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)  # by thread: end and row of each open span
    for each in sorted(ran, key=lambda one: (one.start_ns, -one.end_ns)):
        around = open_on[each.thread]
        while around and (each.start_ns >= around[-1][0] or each.end_ns > around[-1][0]):
            around.pop()
        rows += _rows(each, len(rows), around[-1][1] if around else -1, strings)
        around.append((each.end_ns, len(rows) - 1))
    return table("span", rows)


def _rows(ran: Ran, first: int, parent: int, strings: Strings) -> list[Row]:
    node, place = ran.node, (ran.thread, ran.start_ns, ran.end_ns, -1, -1, -1)
    shapes = -1 if node.shapes is None else strings.add(json.dumps(node.shapes))
    text = -1 if node.work is None else strings.add(work.text(node.work))
    operator = (SpanKind.OPERATOR, node.phase, node.operation, strings.add(ran.name), *place, shapes, 0, text)
    if node.layer is None:
        return [(first, parent, *operator)]
    layer = (first, parent, SpanKind.LAYER, node.phase, Operation.OTHER, strings.add(node.layer), *place, -1, 0, -1)
    return [layer, (first + 1, first, *operator)]
