"""The types of operators as they ran: under the names of the library TensorFlow takes on CPUs, or several made one."""

from collections.abc import Iterator
from typing import Any

from tbdprof.facts.records import Operation
from tbdprof.hooks.on_tensorflow.operators.kinds import operation

_ONE_DNN = ("_MklNative", "_Mkl")  # names of the same operators in the library TensorFlow takes on CPUs
_FUSED = "Fused"
_FUSED_DEPTH = 6  # operators between the last and the first of those that are made one


def plain(ran: str) -> str:
    """Return an operator's type without the marks of the library and of fusion: "_MklNativeFusedConv2D" is a Conv2D."""
    for mark in _ONE_DNN:
        if ran.startswith(mark):
            return _unfused(ran.removeprefix(mark))
    return _unfused(ran.removeprefix("_")) if ran.startswith(f"_{_FUSED}") else ran


def is_fused(ran: str) -> bool:
    """Tell whether an operator stands for several of the graph, the last of which gave it its name."""
    return ran.startswith("_") and plain(ran) != ran and (_FUSED in ran or ran.endswith("WithBias"))


def ran_as(operator: Any, op: str) -> str:
    """Return the type an operator of a graph ran as, which may be another that does the same."""
    ran = plain(op)
    same = ran == operator.type or operation(ran) is Operation.OTHER
    return str(operator.type) if same else ran


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


def _unfused(name: str) -> str:
    for mark in (f"PadWith{_FUSED}", "PadWith", _FUSED):
        if name.startswith(mark) and not name.startswith("FusedBatchNorm"):
            name = name.removeprefix(mark)
    return name.removesuffix("WithBias").removesuffix("Ex")
