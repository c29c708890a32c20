"""The types of operators as they ran: under oneDNN's names on CPUs, or as one fused operator."""

from collections.abc import Iterator
from typing import Any

from tbdprof.facts.records import Operation
from tbdprof.hooks.on_tensorflow.operators.kinds import operation

_ONE_DNN = ("_MklNative", "_Mkl")  # prefixes of the same operators in oneDNN, which TensorFlow uses on CPUs
_FUSED = "Fused"
_FUSED_DEPTH = 6  # most operators between the last and the first of a fused operator


def plain(ran: str) -> str:
    """Return an operator's type without the marks of oneDNN and of fusion: "_MklNativeFusedConv2D" is a Conv2D."""
    for mark in _ONE_DNN:
        if ran.startswith(mark):
            return _unfused(ran.removeprefix(mark))
    return _unfused(ran.removeprefix("_")) if ran.startswith(f"_{_FUSED}") else ran


def is_fused(ran: str) -> bool:
    """Return whether an operator stands for several of the graph; it has the name of the last one."""
    return ran.startswith("_") and plain(ran) != ran and (_FUSED in ran or ran.endswith("WithBias"))


def ran_as(operator: Any, op: str) -> str:
    """Return the type that an operator of a graph ran as; it may be another type that does the same."""
    ran = plain(op)
    same = ran == operator.type or operation(ran) is Operation.OTHER
    return str(operator.type) if same else ran


def first_of(operator: Any, op: str) -> tuple[Any, bool]:
    """Return the matmul or convolution that a fused operator begins with, and whether a bias is part of the fusion.

    It gives the sizes and the layer. A sum at the end may have a second matmul or convolution as its other operand. The
    fused one is then the one followed by a bias or a normalization, and the nearer one if that does not decide.
    """
    wanted, with_bias = plain(op), op.endswith("WithBias")
    if operator.type == wanted or not is_fused(op):
        return operator, with_bias
    found = sorted(_beneath(operator, wanted, 1, (False, False)), key=lambda each: (not each[0], each[1]))
    return (found[0][3], found[0][2]) if found else (operator, with_bias)


def _beneath(operator: Any, wanted: str, depth: int, seen: tuple[bool, bool]) -> Iterator[tuple[bool, int, bool, Any]]:
    """Yield matmuls or convolutions below: (bias or normalization between, depth, bias between, operator)."""
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
