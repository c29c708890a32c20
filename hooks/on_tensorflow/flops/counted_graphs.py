"""FLOP counts of the operators of graphs; in functions traced for any size, from the shapes of each run's arguments."""

from collections.abc import Set
from dataclasses import replace
from typing import Any

from tbdprof.facts.records import Phase
from tbdprof.hooks.on_tensorflow import precision
from tbdprof.hooks.on_tensorflow.flops import works
from tbdprof.hooks.on_tensorflow.flops.operands import Array, Computed
from tbdprof.hooks.on_tensorflow.flops.sizes import Given, SizedGraphs
from tbdprof.hooks.on_tensorflow.operators.fusion import ran_as
from tbdprof.hooks.on_tensorflow.operators.graphs import Graphs
from tbdprof.hooks.on_tensorflow.operators.node import Node

_ATTRIBUTES = {
    "MatMul": ("transpose_a", "transpose_b"),
    **dict.fromkeys(("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"), ("adj_x", "adj_y")),
    "Einsum": ("equation",),
    **dict.fromkeys(("CudnnRNNV3", "CudnnRNNBackpropV3"), ("rnn_mode", "time_major", "num_proj")),
    **dict.fromkeys(("MaxPool", "MaxPool3D", "MaxPoolWithArgmax", "MaxPoolGrad", "MaxPool3DGrad"), ("ksize",)),
    **dict.fromkeys(("AvgPool", "AvgPool3D", "AvgPoolGrad", "AvgPool3DGrad"), ("ksize",)),
    **dict.fromkeys((f"FusedBatchNorm{end}" for end in ("", "V2", "V3", "Grad", "GradV2", "GradV3")), ("is_training",)),
}


class CountedGraphs:
    """Graphs whose nodes say what they compute."""

    def __init__(self, graphs: Graphs) -> None:
        self.graphs = graphs
        self.sized = SizedGraphs()
        self._nodes: dict[tuple[str, str, str | None, Given | int | None], Node | None] = {}

    def find(self, node: str, op: str, function: str | None, given: Given | int | None = None) -> Node | None:
        """Return a node that ran with its FLOP count, by the type that ran, or None if its function is not known.

        `given` is needed for functions traced for any size (`RunShapes.given`). It holds the argument shapes of that
        run, or its batch size.
        """
        key = (node, op, function, given)
        if key not in self._nodes:
            self._nodes[key] = self._counted(self.graphs.find(node, op, function), given)
        return self._nodes[key]

    def product_before(self, node: str, function: str, known: Set[str]) -> Node | None:
        """Return the counted matmul or convolution that `Graphs.product_before` finds."""
        return self._counted(self.graphs.product_before(node, function, known), None)

    def _counted(self, node: Node | None, given: Given | int | None) -> Node | None:
        if node is None or node.computing is None:
            return node
        place, ran = node.computing.place, node.computing.ran
        operator = self.sized.operator(place.reading, place.operator, self.sized.given_at(place, given))
        kind, work = works.kind_and_work(_computed(operator, ran, node.phase, node.computing.has_bias))
        return replace(node, operation=kind, work=work, shapes=_input_shapes(operator))


def _computed(operator: Any, op: str, phase: Phase, has_bias: bool) -> Computed:
    """Return an operator as it ran, with the type that ran."""
    return Computed(
        type=ran_as(operator, op),
        inputs=tuple(_array(tensor) for tensor in operator.inputs),
        outputs=tuple(_array(tensor) for tensor in operator.outputs),
        attributes={name: operator.get_attr(name) for name in _ATTRIBUTES.get(operator.type, ())},
        is_backward=phase is Phase.BACKWARD,
        has_bias=has_bias,
        in_tf32=precision.is_on(),
    )


def _input_shapes(operator: Any) -> list[list[int]] | None:
    """Return the shapes of an operator's inputs, or None if some are not known."""
    shapes = [tensor.shape.as_list() if tensor.shape.rank is not None else [] for tensor in operator.inputs]
    return shapes if all(size is not None for shape in shapes for size in shape) else None


def _array(tensor: Any) -> Array:
    shape = tuple(tensor.shape.as_list()) if tensor.shape.is_fully_defined() else None
    return Array(shape, tensor.dtype.base_dtype.name, tensor.op.type == "ReadVariableOp")
