"""Nest what ran on threads into spans: an operator inside what was open around it, and inside its layer."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from tbdprof.facts.records import Operation, SpanKind
from tbdprof.facts.rows import SpanRow


class _Timed(Protocol):
    @property
    def thread(self) -> int: ...
    @property
    def start_ns(self) -> int: ...
    @property
    def end_ns(self) -> int: ...


_Ran = TypeVar("_Ran", bound=_Timed)


def nested(
    ran: Sequence[_Ran], rows_of: Callable[[_Ran, int, int], Sequence[SpanRow]], first: int = 0
) -> list[SpanRow]:
    """Return the rows of operators, each inside the innermost one that encloses it in time on its thread.

    `rows_of` gives the rows of an operator from the id of its first row, from `first` on, and the id of its parent or
    -1. The last of these rows encloses what ran inside the operator.
    """
    rows = list[SpanRow]()
    open_on: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)  # by thread: end and id of each open operator
    for each in sorted(ran, key=lambda one: (one.start_ns, -one.end_ns)):
        around = open_on[each.thread]
        while around and (each.start_ns >= around[-1][0] or each.end_ns > around[-1][0]):
            around.pop()
        rows += rows_of(each, first + len(rows), around[-1][1] if around else -1)
        around.append((each.end_ns, first + len(rows) - 1))
    return rows


def within_layer(operator: SpanRow, layer: int) -> list[SpanRow]:
    """Return an operator's row inside a row for its layer, which takes its id; `layer` is the index of the name."""
    around = SpanRow(
        id=operator.id,
        parent=operator.parent,
        kind=SpanKind.LAYER,
        phase=operator.phase,
        operation=Operation.OTHER,
        name=layer,
        thread=operator.thread,
        start_ns=operator.start_ns,
        end_ns=operator.end_ns,
        first_sequence=operator.first_sequence,
        last_sequence=operator.last_sequence,
    )
    return [around, operator._replace(id=operator.id + 1, parent=operator.id)]
