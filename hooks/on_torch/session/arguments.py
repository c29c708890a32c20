"""What torch's profiler tells of operators' arguments: their tensors and shapes, and what is computed of them."""

import math
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch._C._autograd import _KinetoEvent
from torch._C._profiler import _ExtraFields_TorchOp, _ProfilerEvent, _TensorMetadata

from tbdprof.facts.records import Operation
from tbdprof.hooks.on_torch import precision
from tbdprof.hooks.on_torch.flops import works
from tbdprof.hooks.on_torch.flops.operands import Argument, Operand
from tbdprof.hooks.on_torch.kernels import event_kinds
from tbdprof.hooks.on_torch.session.events import SeenTensor

Lists = Mapping[int, Sequence[object]]  # arguments by the operator's correlation number

_SPARSE = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)


def lists_of(events: Sequence[_KinetoEvent]) -> Lists:
    """Return the arguments that are no tensors, of which the event tree has the single numbers only."""
    return {
        event.correlation_id(): event.concrete_inputs()
        for event in events
        if works.has_work(event.name()) and event_kinds.kind_of(event) == event_kinds.OPERATOR
    }


def work_of(node: _ProfilerEvent, fields: _ExtraFields_TorchOp, lists: Lists) -> tuple[Operation, str | None]:
    """Return what an operator computes; tree and events of one session number it alike.

    Of a sparse tensor the shape does not tell how much there is to do.
    """
    if not works.has_work(fields.name) or any(each.layout in _SPARSE for each in _metadata(fields.inputs)):
        return works.operation_of(fields.name), None
    told = lists.get(node.correlation_id, ())
    values = [_argument(value, told[i] if i < len(told) else None) for i, value in enumerate(fields.inputs)]
    return works.told_as_text(fields.name, tuple(values), _may_be_tf32(fields))


def _argument(value: object, told: object) -> Argument:
    if isinstance(value, _TensorMetadata):
        return Operand(tuple(value.sizes), str(value.dtype).removeprefix("torch."), value.dtype.itemsize)
    if isinstance(value, list):
        return tuple(_argument(each, None) for each in value)
    return tuple(told) if isinstance(told, list) else told


def _may_be_tf32(fields: _ExtraFields_TorchOp) -> bool:
    """Return whether a GPU computes this operator's products of float32 in TF32."""
    gpus = (each.device.index or 0 for each in _metadata(fields.inputs) if each.device.type == "cuda")
    if not precision.has_tf32(next(gpus, None)):
        return False
    operation = works.operation_of_products(fields.name)
    if operation in (Operation.CONVOLUTION, Operation.RECURRENT):
        return precision.is_tf32(operation)
    return fields.allow_tf32_cublas


def _metadata(values: Sequence[object]) -> Iterator[_TensorMetadata]:
    for value in values:
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, _TensorMetadata):
                yield each


def shapes_of(value: object) -> object:
    """Return a tensor's shape, those of a list of tensors, None of anything else."""
    if isinstance(value, _TensorMetadata):
        return value.sizes
    return [each.sizes for each in value] if isinstance(value, list) else None


def tensors_of(values: Sequence[object]) -> Iterator[SeenTensor]:
    """Yield the tensors among arguments that have memory."""
    for each in _metadata(values):
        if each.storage_data_ptr:
            elements = math.prod(each.sizes)
            yield SeenTensor(
                device=device_text(each.device),
                address=each.storage_data_ptr,
                bytes=elements * each.dtype.itemsize,
                shape=tuple(each.sizes),
            )


def device_text(device: torch.device) -> str:
    """Return "cpu" or "cuda:0"."""
    if device.type == "cpu":
        return "cpu"
    return f"{device.type}:{device.index if device.index is not None and device.index >= 0 else 0}"
