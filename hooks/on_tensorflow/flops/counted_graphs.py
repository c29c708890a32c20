"""A graph's operators as what counts them sees them."""

from collections.abc import Iterator
from typing import Any

from tbdprof.facts.records import Operation, Phase
from tbdprof.hooks.on_tensorflow import precision
from tbdprof.hooks.on_tensorflow.flops import works
from tbdprof.hooks.on_tensorflow.flops.operands import Array, Computed, is_fused, plain

_ATTRIBUTES = {
    "MatMul": ("transpose_a", "transpose_b"),
    **dict.fromkeys(("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"), ("adj_x", "adj_y")),
    "Einsum": ("equation",),
    **dict.fromkeys(("MaxPool", "MaxPool3D", "MaxPoolWithArgmax", "MaxPoolGrad", "MaxPool3DGrad"), ("ksize",)),
    **dict.fromkeys(("AvgPool", "AvgPool3D", "AvgPoolGrad", "AvgPool3DGrad"), ("ksize",)),
    **dict.fromkeys((f"FusedBatchNorm{end}" for end in ("", "V2", "V3", "Grad", "GradV2", "GradV3")), ("is_training",)),
}
_FUSED_DEPTH = 6  # operators between the last and the first of those that are made one


def computed(operator: Any, op: str, phase: Phase, has_bias: bool) -> Computed:
    """Return an operator as it ran, by the type that ran, which may be another that does the same."""
    ran = plain(op)
    same = ran == operator.type or works.operation(ran) is Operation.OTHER
    return Computed(
        type=operator.type if same else ran,
        inputs=tuple(_array(tensor) for tensor in operator.inputs),
        outputs=tuple(_array(tensor) for tensor in operator.outputs),
        attributes={name: operator.get_attr(name) for name in _ATTRIBUTES.get(operator.type, ())},
        is_backward=phase is Phase.BACKWARD,
        has_bias=has_bias,
        in_tf32=precision.is_on(),
    )


def input_shapes(operator: Any) -> list[list[int]] | None:
    """Return the shapes of what an operator takes, None where they are not all known."""
    shapes = [tensor.shape.as_list() if tensor.shape.rank is not None else [] for tensor in operator.inputs]
    return shapes if all(size is not None for shape in shapes for size in shape) else None


def _array(tensor: Any) -> Array:
    shape = tuple(tensor.shape.as_list()) if tensor.shape.is_fully_defined() else None
    return Array(shape, tensor.dtype.base_dtype.name, tensor.op.type == "ReadVariableOp")


def first_of(operator: Any, op: str) -> tuple[Any, bool]:
    """Return the operator that several made one begin with, the product, and whether a bias is among them.

    The product tells the sizes, and the layer is its. A sum at the end may have another product beside it: the one with
    a bias or a normalization after it is that which was fused, of two such the first.
    """
    wanted, with_bias = plain(op), op.endswith("WithBias")
    if operator.type == wanted or not is_fused(op):
        return operator, with_bias
    found = sorted(_beneath(operator, wanted, 1, (False, False)), key=lambda each: (not each[0], each[1]))
    return (found[0][3], found[0][2]) if found else (operator, with_bias)


def _beneath(operator: Any, wanted: str, depth: int, seen: tuple[bool, bool]) -> Iterator[tuple[bool, int, bool, Any]]:
    """Yield the products beneath an operator: whether bias or normalization is between, how deep, if bias, itself."""
    biased = seen[1] or operator.type == "BiasAdd" or _adds_vector(operator)
    marked = seen[0] or biased or operator.type.startswith("FusedBatchNorm")
    for tensor in operator.inputs:
        if tensor.op.type == wanted:
            yield marked, depth, biased, tensor.op
        elif depth < _FUSED_DEPTH:
            yield from _beneath(tensor.op, wanted, depth + 1, (marked, biased))


def _adds_vector(operator: Any) -> bool:
    return operator.type in ("Add", "AddV2") and any(tensor.shape.rank == 1 for tensor in operator.inputs)
