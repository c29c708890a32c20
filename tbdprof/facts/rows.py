"""The rows of a recording's tables: each kind is one class, whose fields and types are those of its array.

There may be hundreds of thousands of events, so a window holds one numpy structured array for each kind. Text is
interned in `Strings`, and the rows hold its index (-1: none). A time is `time.monotonic_ns()` of the recorded process.

`sequence` is the order in which *one* mechanism reported its events. The allocations, frees, owners, spans and step
ends of a window share it, and nothing is ever joined by comparing clocks.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple, get_type_hints

import numpy as np
from numpy.typing import NDArray

Table = NDArray[np.void]  # rows of one kind
Tables = Mapping[str, Table]  # by kind

Long = Annotated[int, "i8"]
Address = Annotated[int, "u8"]
Text = Annotated[int, "i4"]  # index of a text in `Strings`, -1: none
Number = Annotated[float, "f8"]
Code = Annotated[int, "u1"]  # of the enumeration that is named beside it, mostly in `tbdprof.facts.records`


class SpanRow(NamedTuple):
    """A phase, a layer's call or an operator: an interval of one thread."""

    id: Long  # unique in its window
    parent: Long  # id of the enclosing span on the same thread, a smaller one; -1: none
    kind: Code  # SpanKind
    phase: Code  # Phase
    operation: Code  # Operation; OTHER for layers, and for phases except where gradients end (ACCUMULATE)
    name: Text  # operator or layer name (layers: dotted path, "" is the root)
    thread: Long
    start_ns: Long
    end_ns: Long
    first_sequence: Long = -1  # an event e lies inside if first_sequence < e < last_sequence, same thread
    last_sequence: Long = -1
    forward: Long = -1  # the framework's number of the forward operator this one is, or is the gradient of; -1
    shapes: Text = -1  # JSON list of the input shapes
    operand: Address = 0  # CAST only: storage address of the first input, 0: not reported
    work: Text = -1  # what it computes, a `tbdprof.facts.work.Work`; -1: not reported


class KernelRow(NamedTuple):
    """A kernel, copy or memset that a GPU executed."""

    name: Text
    kind: Code  # KernelKind
    device: Text  # "cuda:0"
    stream: Long
    launch_ns: Long  # when the host asked for it, -1: not reported
    start_ns: Long
    end_ns: Long
    span: Long = -1  # innermost span that launched it, -1: none
    grid: Text = -1  # JSON list of three, -1: not reported
    block: Text = -1
    registers: Annotated[int, "i4"] = -1  # per thread, -1: not reported
    shared_bytes: Long = -1  # per block, -1: not reported
    moved_bytes: Long = -1  # copies and memsets, -1: not reported
    thread: Long = -1  # of the host, that launched it, -1: not reported
    graph: Long = -1  # the captured graph it is a node of, -1: none


class AllocationRow(NamedTuple):
    """A block of memory that was allocated, was freed, or existed when the window began."""

    sequence: Long
    kind: Code  # AllocationKind
    device: Text  # "cpu", "cuda:0"
    thread: Long
    address: Address
    requested_bytes: Long  # a freed row repeats what was allocated; -1: not reported
    allocated_bytes: Long  # -1: not reported
    time_ns: Long
    span: Long = -1  # innermost span this happened in, -1: none
    was_tensor: Annotated[int, "i1"] = -1  # 1: was seen as a tensor, 0: never was, -1: not reported
    shape: Text = -1  # JSON shape of the tensor, -1: not reported
    total_bytes: Long = -1  # the framework's own running total for the device after this event, -1: none kept


class OwnerRow(NamedTuple):
    """A storage that was found to hold a weight, a gradient, optimizer state or another role."""

    sequence: Long  # read at this point of the order
    device: Text
    address: Address  # of the storage, not of a view into it
    bytes: Long  # of the storage
    role: Code  # Role; UNKNOWN: of the owner it is known only that it is the framework itself
    name: Text  # parameter name; optimizer state: "parameter name/slot"
    shape: Text  # JSON shape


class StepRow(NamedTuple):
    """A training step."""

    index: Long  # type: ignore[assignment]  # hides tuple's; counted from the start of the run, warm-up included
    block: Long  # steps of one block lie between two synchronizations
    start_ns: Long
    end_ns: Long
    units: Number  # units of work consumed (images, tokens, seconds of audio)
    last_sequence: Long  # order at the end of the step, -1: no mechanism was on


class StepCountRow(NamedTuple):
    """Something else that was counted of a step."""

    step: Long  # index of the step
    kind: Code  # StepCountKind of `tbdprof.facts.consumed`
    name: Text  # the unit, or what has the length
    value: Number


class SampleRow(NamedTuple):
    """The value of a counter at an instant, or over an interval."""

    counter: Text  # one of `tbdprof.facts.counters`
    device: Text
    time_ns: Long
    value: Number
    start_ns: Long = -1  # the value is of the time from here to `time_ns`; -1: of that instant


class CountRow(NamedTuple):
    """The value of a counter for one kernel."""

    kernel: Long  # place among the kernels of the window
    counter: Text  # one of `tbdprof.facts.counters`
    value: Number


class FusedRow(NamedTuple):
    """A kernel that a compiler made of several operators."""

    kernel: Text  # its name
    operators: Text  # JSON list of the operators' names, -1: not reported
    nodes: Text  # JSON list of the nodes of the compiled graph, -1: not reported


Row = SpanRow | KernelRow | AllocationRow | OwnerRow | StepRow | StepCountRow | SampleRow | CountRow | FusedRow


def _dtype(row: type[Row]) -> np.dtype[np.void]:
    hints = get_type_hints(row, include_extras=True)
    return np.dtype([(name, hints[name].__metadata__[0]) for name in row._fields])


ROWS: Mapping[str, type[Row]] = {
    "span": SpanRow,
    "allocation": AllocationRow,
    "owner": OwnerRow,
    "step": StepRow,
    "step_count": StepCountRow,
    "sample": SampleRow,
    "kernel": KernelRow,
    "count": CountRow,
    "fused": FusedRow,
}
KINDS: Mapping[str, np.dtype[np.void]] = {kind: _dtype(row) for kind, row in ROWS.items()}


def table(kind: str, rows: Sequence[Row]) -> Table:
    """Return rows as the array of their kind."""
    return np.array(rows, dtype=KINDS[kind])
