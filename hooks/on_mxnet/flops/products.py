"""The sizes of MXNet's convolutions, matmuls, attention and recurrent layers."""

import math
from collections.abc import Callable, Mapping, Sequence

from tbdprof.facts.records import Operation
from tbdprof.facts.work import GATES
from tbdprof.hooks.on_mxnet.session.calls import Array, Invocation
from tbdprof.hooks.on_mxnet.session.graphs import Node

Computed = Invocation | Node
Sizes = dict[str, int]


def size_of(array: Array) -> int:
    """Return how many elements an array has."""
    return math.prod(array.shape)


def _number(computed: Computed, name: str) -> int:
    return int(computed.attributes.get(name, "1"))


def is_set(computed: Computed, name: str) -> bool:
    """Return whether an attribute of an operator is on."""
    return computed.attributes.get(name, "False") in ("True", "1", "true")


def _wanted(arrays: Sequence[Array]) -> int:
    return sum(array.wanted for array in arrays)


def _with_bias(sizes: Sizes, computed: Computed) -> Sizes:
    return sizes | ({"bias": size_of(computed.outputs[0])} if len(computed.inputs) > 2 else {})


def _convolution(computed: Computed) -> tuple[Sizes, int]:
    weight, made = computed.inputs[1], computed.outputs[0]
    channels = _number(computed, "num_filter")
    sizes = {"weight": size_of(weight), "positions": size_of(made) // channels}
    return _with_bias(sizes, computed), _wanted(computed.inputs[:2])


def _transposed(computed: Computed) -> tuple[Sizes, int]:
    data, weight = computed.inputs[:2]
    sizes = {"weight": size_of(weight), "positions": size_of(data) // weight.shape[0]}
    return _with_bias(sizes, computed), _wanted(computed.inputs[:2])


def _deformable(computed: Computed) -> tuple[Sizes, int]:
    """Take values at places that are computed; the gradients of the values and of the places come from one product."""
    masked = computed.operator.startswith("_contrib_Modulated")
    weight, made = computed.inputs[2 + masked], computed.outputs[0]
    sizes = {"weight": size_of(weight), "positions": size_of(made) // _number(computed, "num_filter")}
    biased = len(computed.inputs) > 3 + masked
    to_values = any(array.wanted for array in computed.inputs[: 2 + masked])
    return sizes | ({"bias": size_of(made)} if biased else {}), to_values + weight.wanted


def _product(batch: int, rows: int, columns: int, inner: int) -> Sizes:
    return {"batch": batch, "rows": rows, "columns": columns, "inner": inner}


def _dense(computed: Computed) -> tuple[Sizes, int]:
    columns, inner = computed.inputs[1].shape
    sizes = _product(1, size_of(computed.outputs[0]) // columns, columns, inner)
    return _with_bias(sizes, computed), _wanted(computed.inputs[:2])


def _dot(computed: Computed) -> tuple[Sizes, int]:
    """Sum over the last axis of the first array and the first axis of the other; a transpose flag swaps the axis."""
    one, other = computed.inputs[:2]
    inner = one.shape[0 if is_set(computed, "transpose_a") else -1]
    return _product(1, size_of(one) // inner, size_of(other) // inner, inner), _wanted((one, other))


def _numpy_dot(computed: Computed) -> tuple[Sizes, int]:
    """Sum over the last axis of the first array and the next to last of the other; a scalar multiplies."""
    one, other = computed.inputs
    inner = one.shape[-1] if one.shape and other.shape else 1
    return _product(1, size_of(one) // (inner or 1), size_of(other) // (inner or 1), inner), _wanted((one, other))


def _numpy_matmul(computed: Computed) -> tuple[Sizes, int]:
    """Treat a vector as a matrix of one row or one column."""
    one, other = computed.inputs
    rows = one.shape[-2] if len(one.shape) > 1 else 1
    columns = other.shape[-1] if len(other.shape) > 1 else 1
    batch = size_of(computed.outputs[0]) // (rows * columns or 1)
    return _product(batch, rows, columns, one.shape[-1]), _wanted((one, other))


def _batch_dot(computed: Computed) -> tuple[Sizes, int]:
    one, other = computed.inputs[:2]
    *batch, rows, columns = computed.outputs[0].shape
    inner = one.shape[-2 if is_set(computed, "transpose_a") else -1]
    return _product(math.prod(batch), rows, columns, inner), _wanted((one, other))


def _self_scores(computed: Computed) -> tuple[Sizes, int]:
    """Queries, keys and values are in one array: time, batch, heads × 3 × width."""
    batch, rows, columns = computed.outputs[0].shape
    heads = _number(computed, "heads")
    return _product(batch, rows, columns, computed.inputs[0].shape[2] // 3 // heads), 2 * _wanted(computed.inputs[:1])


def _scores(computed: Computed) -> tuple[Sizes, int]:
    """Queries have the axes time, batch, heads × width."""
    batch, rows, columns = computed.outputs[0].shape
    heads = _number(computed, "heads")
    return _product(batch, rows, columns, computed.inputs[0].shape[2] // heads), _wanted(computed.inputs[:2])


def _weighted_values(computed: Computed) -> tuple[Sizes, int]:
    batch, rows, inner = computed.inputs[1].shape
    heads = _number(computed, "heads")
    return _product(batch, rows, computed.outputs[0].shape[2] // heads, inner), _wanted(computed.inputs[:2])


def _recurrent(computed: Computed) -> tuple[Sizes, int]:
    """All weight matrices, followed by two biases per gate, are in one array."""
    data, packed = computed.inputs[:2]
    directions = 2 if is_set(computed, "bidirectional") else 1
    layers, width = (_number(computed, name) for name in ("num_layers", "state_size"))
    biases = 2 * GATES[computed.attributes["mode"]] * width * layers * directions
    positions = data.shape[0] * data.shape[1]
    sizes = {"weight": size_of(packed) - biases, "positions": positions, "bias": biases * positions}
    return sizes, 1 + packed.wanted  # the gradients of the states are always needed


# By operator: its kind, and a function that returns its sizes and how many matmuls or convolutions its gradients take.
PRODUCTS: Mapping[str, tuple[Operation, Callable[[Computed], tuple[Sizes, int]]]] = {
    "Convolution": (Operation.CONVOLUTION, _convolution),
    "Deconvolution": (Operation.CONVOLUTION, _transposed),
    "_contrib_DeformableConvolution": (Operation.CONVOLUTION, _deformable),
    "_contrib_ModulatedDeformableConvolution": (Operation.CONVOLUTION, _deformable),
    "FullyConnected": (Operation.MATMUL, _dense),
    "dot": (Operation.MATMUL, _dot),
    "batch_dot": (Operation.MATMUL, _batch_dot),
    "_np_dot": (Operation.MATMUL, _numpy_dot),
    "_npi_matmul": (Operation.MATMUL, _numpy_matmul),
    "_linalg_gemm2": (Operation.MATMUL, _batch_dot),
    "_linalg_gemm": (Operation.MATMUL, _batch_dot),
    "_contrib_interleaved_matmul_selfatt_qk": (Operation.MATMUL, _self_scores),
    "_contrib_interleaved_matmul_selfatt_valatt": (Operation.MATMUL, _weighted_values),
    "_contrib_interleaved_matmul_encdec_qk": (Operation.MATMUL, _scores),
    "_contrib_interleaved_matmul_encdec_valatt": (Operation.MATMUL, _weighted_values),
    "RNN": (Operation.RECURRENT, _recurrent),
}
