"""What ran inside regions that XLA compiled: the instructions it made, by the operators they were made of.

A region's program (an HloProto) comes with the trace, and names for each instruction the operator it stands for. The
times are those told: an instruction without an event has none. A product is counted as the operator's own definition
has it where one instruction computes it, else by what the instruction itself multiplies; what else was fused has no
count.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
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
from tbdprof.hooks.on_tensorflow.operators.graphs import Graphs
from tbdprof.hooks.on_tensorflow.operators.node import Node
from tbdprof.hooks.on_tensorflow.operators.runs import Runs
from tbdprof.hooks.on_tensorflow.session.events import HloEvent, OpEvent, Trace

_OPERATIONS = {
    "convolution": Operation.CONVOLUTION,
    "dot": Operation.MATMUL,
    **dict.fromkeys(("copy", "transpose", "concatenate", "pad", "slice", "broadcast"), Operation.COPY),
    "convert": Operation.CAST,
    "reduce": Operation.REDUCTION,
}
_LIBRARIES = {"__cublas$": Operation.MATMUL, "__cudnn$conv": Operation.CONVOLUTION}  # what calls to them begin with
_PRODUCTS = (Operation.CONVOLUTION, Operation.MATMUL)
_PRECISIONS = {"F32": "fp32", "F64": "fp64", "BF16": "bf16", "F16": "fp16"}
_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
_FOLLOWED = 4  # instructions from one without a name to the one it is computed for


@dataclass(frozen=True, slots=True)
class _Region:
    """A function that was compiled, or the call of one within another function."""

    function: str
    call: str = ""  # the node that calls it, "" where Python does
    op: str = ""

    def within(self, operator: str) -> str:
        """Return the name of one of its operators as the function has it that is not compiled."""
        return f"{self.call}/{operator}" if self.call else operator

    def around(self, graphs: Graphs) -> Node:
        """Return what the call says of everything in it: its phase and its layer; Python's own says nothing."""
        found = graphs.find(self.call, self.op, self.function) if self.call else None
        if found is None:
            return Node(Phase.OUTSIDE, None, Operation.COMPILED)
        return Node(found.phase, found.layer, Operation.COMPILED, source=found.source)


class Program:
    """A compiled region's instructions."""

    def __init__(self, told: bytes) -> None:
        self._module = hlo_pb2.HloProto.FromString(told).hlo_module
        self._computations = {each.id: each for each in self._module.computations}
        self._by_id = {each.id: each for part in self._computations.values() for each in part.instructions}
        self._by_name = {each.name: each for each in self._by_id.values()}

    def instruction(self, name: str) -> Any:
        """Return an instruction, None where there is none of the name."""
        return self._by_name.get(name)

    def operator(self, instruction: Any) -> tuple[str, str]:
        """Return the name and type of the operator an instruction stands for: its own, else that of what takes it."""
        level = [instruction]
        for _ in range(_FOLLOWED):
            for each in level:
                if each.metadata.op_name:
                    return each.metadata.op_name, each.metadata.op_type
            level = [taker for each in level for taker in self._takers[each.id]]
        return "", ""

    def computes(self, instruction: Any) -> Operation:
        """Return what kind of operation an instruction is by itself."""
        if instruction.opcode == "custom-call":
            target = instruction.custom_call_target
            return next((kind for name, kind in _LIBRARIES.items() if target.startswith(name)), Operation.OTHER)
        return _OPERATIONS.get(instruction.opcode, Operation.OTHER)

    def product_in(self, instruction: Any) -> Any:
        """Return the product that is fused in an instruction if it is one alone, else the instruction itself."""
        fused = instruction.called_computation_ids if instruction.opcode == "fusion" else ()
        inside = [each for part in fused for each in self._computations[part].instructions]
        products = [each for each in inside if self.computes(each) in _PRODUCTS]
        return products[0] if len(products) == 1 else instruction

    @cached_property
    def named(self) -> frozenset[str]:
        """The operators that instructions which compute products are named for."""
        products = (each for each in self._by_id.values() if self.computes(each) in _PRODUCTS)
        return frozenset(each.metadata.op_name for each in products) - {""}

    def is_alone(self, instruction: Any) -> bool:
        """Tell whether no other instruction computes a product of the same operator."""
        return self._shared[self.operator(instruction)[0]] == 1

    def work(self, instruction: Any) -> Work | None:
        """Return what an instruction multiplies by itself, None where a library does that is called for it."""
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
        """How many instructions compute products of each operator."""
        products = (each for each in self._by_id.values() if self.computes(each) in _PRODUCTS)
        return Counter(self.operator(each)[0] for each in products)


def instructions(trace: Trace, graphs: CountedGraphs) -> Iterator[Ran]:
    """Yield the instructions that ran, with what they mean."""
    programs = {name: Program(told) for name, told in trace.hlo_protos.items()}
    callers, known = _Callers(trace, graphs.graphs), dict[tuple[str, str, _Region | None], Node]()
    for event in trace.hlo_ops:
        key = event.module, event.name, callers.region(event)
        if key not in known:
            known[key] = _node(programs.get(event.module), event.name, key[2], graphs)
        yield Ran(event.name.partition(".")[0], event.thread, event.start_ns, event.end_ns, known[key])


class _Callers:
    """The calls that ran compiled regions: of Python, and of functions that were not compiled themselves."""

    def __init__(self, trace: Trace, graphs: Graphs) -> None:
        compiled = {each.name for each in trace.functions if each.is_compiled}
        self._by_python = {name: _Region(name) for name in compiled}
        self._calls: defaultdict[str, list[tuple[OpEvent, _Region]]] = defaultdict(list)
        self._functions: dict[str, str | None] = {}  # by module
        runs = Runs(trace, graphs)
        for op in trace.ops if trace.hlo_ops else ():
            function = runs.function(op) if op.op in _CALLS else None
            called = None if function is None else graphs.called(op.node, function)
            if function is not None and called is not None:
                self._calls[called].append((op, _Region(function, op.node, op.op)))

    def region(self, event: HloEvent) -> _Region | None:
        """Return the region an instruction ran in: the call of it that began last before, None where none is known."""
        function = self._function(event.module)
        if function is None or function in self._by_python:
            return None if function is None else self._by_python[function]
        calls = self._calls[function]
        place = bisect_right(calls, event.start_ns, key=lambda call: call[0].start_ns)
        return calls[max(place - 1, 0)][1]

    def _function(self, module: str) -> str | None:
        """Return the function a program was compiled from, whose name begins the program's."""
        if module not in self._functions:
            known = (each for each in (*self._by_python, *self._calls) if module.startswith(_program(each)))
            self._functions[module] = next(known, None)
        return self._functions[module]


def _program(function: str) -> str:
    """Return what XLA's name of a function's program begins with."""
    return f"{function.replace('_', 'a', 1)}__"


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
        found = None  # the function has no such operator: the call's name begins its name
    if kind in _PRODUCTS:
        return _product(program, instruction, found or around, None if found is None else region, graphs)
    if found is None:
        return replace(around, operation=kind)
    operation = kind if kind is not Operation.OTHER or found.operation in _PRODUCTS else found.operation
    return replace(found, operation=operation, work=None, shapes=None, gradients=(), adds_to=None)


def _product(program: Program, instruction: Any, found: Node, region: _Region | None, graphs: CountedGraphs) -> Node:
    """Say what a product is: where XLA gave it no name, the one that leads to what takes it and has no other."""
    if region is not None and not instruction.metadata.op_name:
        taker = region.within(program.operator(instruction)[0])
        found = graphs.product_before(taker, region.function, program.named) or found
    work = found.work if program.is_alone(instruction) else None
    if work is None or work.operation not in _PRODUCTS:
        work = program.work(instruction)
    return replace(found, operation=program.computes(instruction), work=work, shapes=None, gradients=(), adds_to=None)


def _precision(instruction: Any) -> str:
    names = instruction.shape.DESCRIPTOR.fields_by_name["element_type"].enum_type.values_by_number
    told = str(names[instruction.shape.element_type].name)
    return _PRECISIONS.get(told, told.lower())
