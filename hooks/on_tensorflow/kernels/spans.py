"""The operators of a kernels window as spans, each inside a span for its layer.

An operator that runs inside another on the same thread lies in that operator's span.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from tbdprof.facts import work
from tbdprof.facts.records import SpanKind, Strings
from tbdprof.facts.rows import SpanRow, Table, table
from tbdprof.hooks.nesting import nested, within_layer
from tbdprof.hooks.on_tensorflow.operators.node import Node


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
    return table("span", nested(ran, lambda each, first, parent: _rows(each, first, parent, strings)))


def _rows(ran: Ran, first: int, parent: int, strings: Strings) -> list[SpanRow]:
    node = ran.node
    operator = SpanRow(
        id=first,
        parent=parent,
        kind=SpanKind.OPERATOR,
        phase=node.phase,
        operation=node.operation,
        name=strings.add(ran.name),
        thread=ran.thread,
        start_ns=ran.start_ns,
        end_ns=ran.end_ns,
        shapes=-1 if node.shapes is None else strings.add(json.dumps(node.shapes)),
        work=-1 if node.work is None else strings.add(work.text(node.work)),
    )
    return [operator] if node.layer is None else within_layer(operator, strings.add(node.layer))
