"""What the operators of a session compute, taken from the arguments that torch's profiler recorded."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch._C._autograd import _KinetoEvent
from torch._C._profiler import _ExtraFields_TorchOp, _ProfilerEvent, _TensorMetadata

from tbdprof.facts.records import Operation
from tbdprof.facts.work import Work, parse
from tbdprof.hooks.on_torch import precision
from tbdprof.hooks.on_torch.flops import works
from tbdprof.hooks.on_torch.flops.operands import Argument, Operand
from tbdprof.hooks.on_torch.kernels import event_kinds
from tbdprof.hooks.on_torch.session.arguments import metadata
from tbdprof.hooks.on_torch.session.events import Region, Scope, surroundings
from tbdprof.hooks.on_torch.session.reading import Describe

_Lists = Mapping[int, Sequence[object]]  # arguments by the operator's correlation number

_PRODUCTS = {Operation.CONVOLUTION, Operation.MATMUL}
_SPARSE = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)


def describing(events: Sequence[_KinetoEvent]) -> Describe:
    """Return a function that says what an operator computes, from the arguments in a session's events."""
    lists = _lists_of(events)

    def describe(region: Region, node: _ProfilerEvent, fields: _ExtraFields_TorchOp) -> None:
        region.operation, region.work = _work_of(node, fields, lists)
        if region.scope is Scope.FUNCTION:
            _leave_to_call_inside(region)

    return describe


def _lists_of(events: Sequence[_KinetoEvent]) -> _Lists:
    """Return all arguments that are not tensors; the event tree holds only the single numbers among them."""
    return {
        event.correlation_id(): event.concrete_inputs()
        for event in events
        if works.has_work(event.name()) and event_kinds.kind_of(event) == event_kinds.OPERATOR
    }


def _work_of(node: _ProfilerEvent, fields: _ExtraFields_TorchOp, lists: _Lists) -> tuple[Operation, str | None]:
    """Return what an operator computes; a session's tree and events use the same numbers for operators.

    An operator on a sparse tensor has no `Work`, because the shape does not say how much there is to compute.
    """
    if not works.has_work(fields.name) or any(each.layout in _SPARSE for each in metadata(fields.inputs)):
        return works.operation_of(fields.name), None
    concrete = lists.get(node.correlation_id, ())
    values = [_argument(value, concrete[i] if i < len(concrete) else None) for i, value in enumerate(fields.inputs)]
    return works.kind_and_text(fields.name, tuple(values), _may_be_tf32(fields))


def _argument(value: object, concrete: object) -> Argument:
    if isinstance(value, _TensorMetadata):
        return Operand(tuple(value.sizes), str(value.dtype).removeprefix("torch."), value.dtype.itemsize)
    if isinstance(value, list):
        return tuple(_argument(each, None) for each in value)
    return tuple(concrete) if isinstance(concrete, list) else concrete


def _may_be_tf32(fields: _ExtraFields_TorchOp) -> bool:
    """Return whether a GPU computes this operator's float32 matmuls or convolutions in TF32."""
    gpus = (each.device.index or 0 for each in metadata(fields.inputs) if each.device.type == "cuda")
    if not precision.has_tf32(next(gpus, None)):
        return False
    operation = works.operation_of_products(fields.name)
    if operation in (Operation.CONVOLUTION, Operation.RECURRENT):
        return precision.is_tf32(operation)
    return fields.allow_tf32_cublas


def _leave_to_whole(region: Region) -> None:
    """Drop the `Work` of operators around a larger one: under `torch.vmap` they show the shapes of one sample."""
    if region.work is None:
        return
    inner = parse(region.work)
    for around in surroundings(region):
        if around.scope is not Scope.FUNCTION:
            return
        if around.work is not None and _is_part(parse(around.work), inner):
            around.work = None


def _is_part(work: Work, whole: Work) -> bool:
    alike = work.operation == whole.operation or {work.operation, whole.operation} <= _PRODUCTS
    return alike and _extent(work) < _extent(whole)


def _extent(work: Work) -> int:
    return work.products * math.prod(size for name, size in work.sizes.items() if name != "bias")


def _leave_to_call_inside(region: Region) -> None:
    """Keep the inner `Work` only, where autocast makes an operator call itself in another precision."""
    _leave_to_whole(region)
    around = region.parent
    if around is None or around.name != region.name or around.work is None or region.work is None:
        return
    if parse(around.work).precision != parse(region.work).precision:
        around.work = None
