"""What ran inside regions compiled by XLA: its instructions, each assigned to the operator that it came from.

A region's program (an HloProto) comes with the trace. It names the operator of each instruction. The times are those of
reported events: an instruction without an event has no time. If one instruction computes a matmul or convolution, the
FLOP count comes from the operator's definition, else from the sizes of the instruction itself. Other fused operators
have no count.
"""

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

from tensorflow.compiler.xla.service import hlo_pb2

from tbdprof.facts.records import Operation, Phase
from tbdprof.facts.work import Work
from tbdprof.hooks.on_tensorflow.flops.counted_graphs import CountedGraphs
from tbdprof.hooks.on_tensorflow.flops.products import product
from tbdprof.hooks.on_tensorflow.kernels.spans import Ran
from tbdprof.hooks.on_tensorflow.operators.eager import Asked
from tbdprof.hooks.on_tensorflow.operators.graphs import Graphs
from tbdprof.hooks.on_tensorflow.operators.node import Node
from tbdprof.hooks.on_tensorflow.operators.runs import Runs
from tbdprof.hooks.on_tensorflow.session.events import FUNCTIONS, HloEvent, OpEvent, Trace

_OPERATIONS = {
    "convolution": Operation.CONVOLUTION,
    "dot": Operation.MATMUL,
    **dict.fromkeys(("copy", "transpose", "concatenate", "pad", "slice", "broadcast"), Operation.COPY),
    "convert": Operation.CAST,
    "reduce": Operation.REDUCTION,
}
_LIBRARIES = {"__cublas$": Operation.MATMUL, "__cudnn$conv": Operation.CONVOLUTION}  # prefixes of calls to libraries
_PRODUCTS = (Operation.CONVOLUTION, Operation.MATMUL)
_PRECISIONS = {"F32": "fp32", "F64": "fp64", "BF16": "bf16", "F16": "fp16"}
_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
_NOT_IN_NAMES = re.compile(r"[^\w.-]", re.ASCII)  # XLA writes "_" for these
_FOLLOWED = 4  # how many steps to follow from an instruction without a name to the one that uses its result


@dataclass(frozen=True, slots=True)
class _Region:
    """A compiled function, or a call of one within another function."""

    function: str
    call: str = ""  # the node that calls it, or "" if Python does
    op: str = ""
    phase: Phase = Phase.OUTSIDE  # in which Python calls it
    layer: str | None = None

    def within(self, operator: str) -> str:
        """Return the name that one of its operators has in the function that is not compiled."""
        return f"{self.call}/{operator}" if self.call else operator

    def around(self, graphs: Graphs) -> Node:
        """Return the phase and layer that the call gives to everything in it."""
        found = graphs.find(self.call, self.op, self.function) if self.call else None
        if found is None:
            return Node(self.phase, self.layer, Operation.COMPILED)
        return Node(found.phase, found.layer, Operation.COMPILED, source=found.source)


class Program:
    """A compiled region's instructions."""

    def __init__(self, proto: bytes) -> None:
        self._module = hlo_pb2.HloProto.FromString(proto).hlo_module
        self._computations = {each.id: each for each in self._module.computations}
        self._by_id = {each.id: each for part in self._computations.values() for each in part.instructions}
        self._by_name = {each.name: each for each in self._by_id.values()}

    def instruction(self, name: str) -> Any:
        """Return the instruction of a name, or None if there is none."""
        return self._by_name.get(name)

    def operator(self, instruction: Any) -> tuple[str, str]:
        """Return name and type of an instruction's operator: its own, else that of an instruction that reads it."""
        level = [instruction]
        for _ in range(_FOLLOWED):
            for each in level:
                if each.metadata.op_name:
                    return each.metadata.op_name, each.metadata.op_type
            level = [taker for each in level for taker in self._takers[each.id]]
        return "", ""

    def computes(self, instruction: Any) -> Operation:
        """Return the kind of operation that an instruction computes."""
        if instruction.opcode == "custom-call":
            target = instruction.custom_call_target
            return next((kind for name, kind in _LIBRARIES.items() if target.startswith(name)), Operation.OTHER)
        return _OPERATIONS.get(instruction.opcode, Operation.OTHER)

    def product_in(self, instruction: Any) -> Any:
        """Return the only matmul or convolution fused in an instruction, or the instruction itself if not just one."""
        fused = instruction.called_computation_ids if instruction.opcode == "fusion" else ()
        inside = [each for part in fused for each in self._computations[part].instructions]
        products = [each for each in inside if self.computes(each) in _PRODUCTS]
        return products[0] if len(products) == 1 else instruction

    @cached_property
    def named(self) -> frozenset[str]:
        """The operators named by the instructions that compute matmuls or convolutions."""
        products = (each for each in self._by_id.values() if self.computes(each) in _PRODUCTS)
        return frozenset(each.metadata.op_name for each in products) - {""}

    def is_alone(self, instruction: Any) -> bool:
        """Return whether no other instruction computes a matmul or convolution for the same operator."""
        return self._shared[self.operator(instruction)[0]] == 1

    def work(self, instruction: Any) -> Work | None:
        """Return an instruction's own `Work`, or None if it calls a library that computes it."""
        if instruction.opcode == "custom-call":
            return None
        made, precision = list(instruction.shape.dimensions), _precision(instruction)
        one, other = (list(self._by_id[each].shape.dimensions) for each in instruction.operand_ids[:2])
        if instruction.opcode == "dot":
            numbers = instruction.dot_dimension_numbers
            inner = prod(one[place] for place in numbers.lhs_contracting_dimensions)
            batch = prod(one[place] for place in numbers.lhs_batch_dimensions)
            rows = prod(one) // (inner * batch or 1)
            sizes = product(batch, rows, prod(made) // (batch * rows or 1), inner)
            return Work(Operation.MATMUL, sizes, precision=precision)
        features = other[instruction.convolution_dimension_numbers.kernel_output_feature_dimension]
        sizes = {"weight": prod(other), "positions": prod(made) // (features or 1)}
        return Work(Operation.CONVOLUTION, sizes, precision=precision)

    @cached_property
    def _takers(self) -> Mapping[int, list[Any]]:
        takers: defaultdict[int, list[Any]] = defaultdict(list)
        for each in self._by_id.values():
            for taken in each.operand_ids:
                takers[taken].append(each)
        return takers

    @cached_property
    def _shared(self) -> Counter[str]:
        """How many instructions compute matmuls or convolutions for each operator."""
        products = (each for each in self._by_id.values() if self.computes(each) in _PRODUCTS)
        return Counter(self.operator(each)[0] for each in products)


def instructions(trace: Trace, graphs: CountedGraphs, asked: Sequence[Asked] = ()) -> Iterator[Ran]:
    """Yield the instructions that ran, with their purpose; `asked` are Python's calls."""
    programs = {name: Program(proto) for name, proto in trace.hlo_protos.items()}
    callers, known = _Callers(trace, graphs.graphs, asked), dict[tuple[str, str, _Region | None], Node]()
    for event in trace.hlo_ops:
        key = event.module, event.name, callers.region(event)
        if key not in known:
            known[key] = _node(programs.get(event.module), event.name, key[2], graphs)
        yield Ran(event.name.partition(".")[0], event.thread, event.start_ns, event.end_ns, known[key])


class _Callers:
    """The calls that ran compiled regions, from Python and from functions that are not compiled."""

    def __init__(self, trace: Trace, graphs: Graphs, asked: Sequence[Asked]) -> None:
        self._by_python = {
            each.name: [(each.start_ns, _Region(each.name))] for each in trace.functions if each.is_compiled
        }
        if trace.hlo_ops:
            self._by_python |= _called_eagerly(trace, asked)
        self._calls: defaultdict[str, list[tuple[int, _Region]]] = defaultdict(list)  # with the time of each
        self._functions: dict[str, str | None] = {}  # by module
        runs = Runs(trace, graphs)
        for op in trace.ops if trace.hlo_ops else ():
            function = runs.function(op) if op.op in _CALLS else None
            called = None if function is None else graphs.called(op.node, function)
            if function is not None and called is not None:
                self._calls[called].append((op.start_ns, _Region(function, op.node, op.op)))

    def region(self, event: HloEvent) -> _Region | None:
        """Return the region of an instruction, by the last call that began before it, or None if none is known."""
        function = self._function(event.module)
        if function is None:
            return None
        calls = self._by_python.get(function) or self._calls[function]
        return calls[max(bisect_right(calls, event.start_ns, key=lambda call: call[0]) - 1, 0)][1]

    def _function(self, module: str) -> str | None:
        """Return the function that a program was compiled from; the program's name begins with the function's."""
        if module not in self._functions:
            known = (each for each in (*self._by_python, *self._calls) if module.startswith(_program(each)))
            self._functions[module] = next(known, None)
        return self._functions[module]


def _called_eagerly(trace: Trace, asked: Sequence[Asked]) -> dict[str, list[tuple[int, _Region]]]:
    """Return the calls of functions in eager mode with their times: the k-th call of a function is its k-th run."""
    calls, runs = defaultdict[str, list[Asked]](list), defaultdict[str, list[OpEvent]](list)
    for each in asked:
        if each.type.startswith(FUNCTIONS):
            calls[each.type].append(each)
    for op in trace.ops:
        if op.op in calls and not op.is_eager:
            runs[op.op].append(op)
    return {
        name: [
            (op.start_ns, _Region(name, phase=call.phase, layer=call.layer))
            for op, call in zip(ran, calls[name], strict=True)
        ]
        for name, ran in runs.items()
        if len(ran) == len(calls[name])
    }


def _program(function: str) -> str:
    """Return the prefix of XLA's name for a function's program."""
    return f"{_NOT_IN_NAMES.sub('_', function).replace('_', 'a', 1)}__"


def _node(program: Program | None, name: str, region: _Region | None, graphs: CountedGraphs) -> Node:
    around = Node(Phase.OUTSIDE, None, Operation.COMPILED) if region is None else region.around(graphs.graphs)
    instruction = None if program is None else program.instruction(name)
    if program is None or instruction is None:
        return around
    instruction = program.product_in(instruction)
    kind = program.computes(instruction)
    operator, op_type = program.operator(instruction)
    found = graphs.find(region.within(operator), op_type, region.function) if operator and region is not None else None
    if found is not None and around.source and found.source in ("", around.source):
        found = None  # the function has no such operator: the name begins with the call's name
    if found is not None and found.phase is Phase.OUTSIDE:
        found = replace(found, phase=around.phase, layer=found.layer or around.layer)
    if kind in _PRODUCTS:
        return _product(program, instruction, found or around, None if found is None else region, graphs)
    if found is None:
        return replace(around, operation=kind)
    operation = kind if kind is not Operation.OTHER or found.operation in _PRODUCTS else found.operation
    return replace(found, operation=operation, work=None, shapes=None, gradients=(), adds_to=None)


def _product(program: Program, instruction: Any, found: Node, region: _Region | None, graphs: CountedGraphs) -> Node:
    """Describe a matmul or convolution; without a name, it is the unnamed one that leads to the instruction's user."""
    if region is not None and not instruction.metadata.op_name:
        taker = region.within(program.operator(instruction)[0])
        found = graphs.product_before(taker, region.function, program.named) or found
    work = found.work if program.is_alone(instruction) else None
    if work is None or work.operation not in _PRODUCTS:
        work = program.work(instruction)
    return replace(found, operation=program.computes(instruction), work=work, shapes=None, gradients=(), adds_to=None)


def _precision(instruction: Any) -> str:
    names = instruction.shape.DESCRIPTOR.fields_by_name["element_type"].enum_type.values_by_number
    element_type = str(names[instruction.shape.element_type].name)
    return _PRECISIONS.get(element_type, element_type.lower())
