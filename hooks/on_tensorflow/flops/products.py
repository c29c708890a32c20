"""Convolutions and matmuls: exact FLOP counts.

The gradient of a convolution applies the same weight at the same positions as the convolution. So does a transposed
convolution, which TensorFlow computes with the gradient's operator. Each counts as one convolution of the same sizes.
"""

import math
from collections.abc import Callable, Mapping

from tbdprof.facts.work import GATES
from tbdprof.hooks.on_tensorflow.flops.operands import Array, Computed

Sizes = dict[str, int]


def _laid(weight: Array, mapped: Array, channels: int) -> Sizes:
    """Apply every weight at each position of an activation; each position has all channels."""
    return {"weight": weight.elements, "positions": mapped.elements // (channels or 1)}


def _convolution(computed: Computed) -> Sizes:
    """Inputs: activation, weight (…, channels in per group, channels out)."""
    weight = computed.inputs[1]
    return _laid(weight, computed.result, weight.dimensions[-1])


def _depthwise(computed: Computed) -> Sizes:
    """Inputs: activation, weight (…, channels in, multiplier)."""
    weight = computed.inputs[1]
    return _laid(weight, computed.result, math.prod(weight.dimensions[-2:]))


def _to_input(computed: Computed) -> Sizes:
    """Inputs: sizes, weight, gradient."""
    weight, gradient = computed.inputs[1:3]
    return _laid(weight, gradient, weight.dimensions[-1])


def _depthwise_to_input(computed: Computed) -> Sizes:
    weight, gradient = computed.inputs[1:3]
    return _laid(weight, gradient, math.prod(weight.dimensions[-2:]))


def _to_weight(computed: Computed) -> Sizes:
    """Inputs: activation, sizes, gradient."""
    return _laid(computed.result, computed.inputs[2], computed.result.dimensions[-1])


def _depthwise_to_weight(computed: Computed) -> Sizes:
    return _laid(computed.result, computed.inputs[2], math.prod(computed.result.dimensions[-2:]))


def product(batch: int, rows: int, columns: int, inner: int) -> Sizes:
    """Return the sizes of a matmul."""
    return {"batch": batch, "rows": rows, "columns": columns, "inner": inner}


def _matmul(computed: Computed) -> Sizes:
    """Inputs: two matrices or batches of matrices; either may be transposed."""
    one = computed.inputs[0].dimensions
    turned = any(computed.attributes.get(name) for name in ("transpose_a", "adj_x"))
    *batch, rows, columns = computed.result.dimensions
    return product(math.prod(batch), rows, columns, one[-2] if turned else one[-1])


def einsum_sizes(equation: str, one: tuple[int, ...], other: tuple[int, ...]) -> Sizes:
    """Return the sizes of an einsum over two arrays; raise LookupError if one array alone is summed over an axis."""
    taken, _, made = equation.replace(" ", "").partition("->")
    left, right = (_labels(text, len(shape)) for text, shape in zip(taken.split(","), (one, other), strict=True))
    ellipsis = max((text for text in (*left, *right) if text.isdigit()), default="", key=int)
    result = _labels(made, len(made) - 3 + int(ellipsis or -1) + 1) if "..." in made else list(made)
    sizes: dict[str, int] = {}
    for label, size in (*zip(left, one, strict=True), *zip(right, other, strict=True)):
        sizes[label] = max(size, sizes.get(label, 1))
    first, second, last = set(left), set(right), set(result)
    if (first ^ second) - last:
        raise LookupError(equation)

    def times(labels: set[str]) -> int:
        return math.prod(sizes[label] for label in labels)

    batch, inner = times(first & second & last), times((first & second) - last)
    return product(batch, times((first - second) & last), times((second - first) & last), inner)


def _labels(text: str, rank: int) -> list[str]:
    """Return a label for each axis; axes of an ellipsis get numbers, counted from the last."""
    before, dots, after = text.partition("...")
    if not dots:
        return list(text)
    hidden = rank - len(before) - len(after)
    return [*before, *(str(place) for place in range(hidden, 0, -1)), *after]


def _einsum(computed: Computed) -> Sizes:
    one, other = computed.inputs
    equation = computed.attributes["equation"]
    text = equation.decode() if isinstance(equation, bytes) else str(equation)
    return einsum_sizes(text, one.dimensions, other.dimensions)


def _sparse_by_dense(computed: Computed) -> Sizes:
    """Inputs: indices and values of a matrix, its shape, a dense matrix; a row of that for each value."""
    return product(1, computed.inputs[1].elements, computed.result.dimensions[-1], 1)


def _recurrent(computed: Computed) -> Sizes:
    """Inputs: activation, states, all weight matrices followed by two biases per gate; of all layers and directions."""
    given, state, _, packed = computed.inputs[:4]
    if computed.attributes.get("num_proj"):
        raise LookupError("num_proj")
    width, batch = state.dimensions[-1], given.dimensions[1 if computed.attributes.get("time_major", True) else 0]
    mode = computed.attributes.get("rnn_mode", b"lstm")
    gates = GATES[mode.decode() if isinstance(mode, bytes) else mode]
    biases = 2 * gates * width * (state.elements // (batch * width))
    positions = math.prod(given.dimensions[:2])
    return {"weight": packed.elements - biases, "positions": positions, "bias": biases * positions}


PRODUCTS: Mapping[str, Callable[[Computed], Sizes]] = {
    **dict.fromkeys(("Conv2D", "Conv3D"), _convolution),
    **dict.fromkeys(("Conv2DBackpropInput", "Conv3DBackpropInput", "Conv3DBackpropInputV2"), _to_input),
    **dict.fromkeys(("Conv2DBackpropFilter", "Conv3DBackpropFilter", "Conv3DBackpropFilterV2"), _to_weight),
    "DepthwiseConv2dNative": _depthwise,
    "DepthwiseConv2dNativeBackpropInput": _depthwise_to_input,
    "DepthwiseConv2dNativeBackpropFilter": _depthwise_to_weight,
    **dict.fromkeys(("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"), _matmul),
    "Einsum": _einsum,
    "SparseTensorDenseMatMul": _sparse_by_dense,
    **dict.fromkeys(("CudnnRNNV3", "CudnnRNNBackpropV3"), _recurrent),
}
