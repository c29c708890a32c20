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
    rows = _Rows(strings)
    return table("span", nested(ran, rows.of))


class _Rows:
    """Makes the rows of what ran; a node runs many times, and its texts are written once."""

    def __init__(self, strings: Strings) -> None:
        self._strings = strings
        self._texts: dict[int, tuple[int, int]] = {}  # by the id of a node, which lives as long as what ran

    def of(self, ran: Ran, first: int, parent: int) -> list[SpanRow]:
        """Return the operator's row, inside its layer's if it has one."""
        node, strings = ran.node, self._strings
        shapes, work_text = self._texts.get(id(node)) or self._texts.setdefault(id(node), self._write(node))
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
            shapes=shapes,
            work=work_text,
        )
        return [operator] if node.layer is None else within_layer(operator, strings.add(node.layer))

    def _write(self, node: Node) -> tuple[int, int]:
        """Return the indices of the node's shapes and work among the strings, -1 for what is not known."""
        return (
            -1 if node.shapes is None else self._strings.add(json.dumps(node.shapes)),
            -1 if node.work is None else self._strings.add(work.text(node.work)),
        )
