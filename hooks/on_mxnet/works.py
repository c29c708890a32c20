"""What MXNet's operators compute, from their attributes and the shapes of what they take and make."""

import ast
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tbdprof.hooks.on_mxnet.calls import Array, Invocation
from tbdprof.hooks.on_mxnet.graphs import Node
from tbdprof.records import Operation
from tbdprof.work import Work

Computed = Invocation | Node
_Sizes = dict[str, int]

_PRECISIONS = {"float32": "fp32", "float64": "fp64", "float16": "fp16"}
_ITEM_BYTES = {"float32": 4, "float64": 8, "float16": 2, "uint8": 1, "int32": 4, "int8": 1, "int64": 8, "bool": 1}
_GATES = {"lstm": 4, "gru": 3, "rnn_relu": 1, "rnn_tanh": 1}
_BACKWARD = "_backward_"

_ARITHMETIC = """
    _plus _minus _plus_scalar _minus_scalar _rminus_scalar broadcast_maximum broadcast_minimum broadcast_equal where
    add_n _grad_add ElementWiseSum add
"""
_OF_ONE = """
    _mul_scalar _div_scalar _rdiv_scalar _maximum_scalar _minimum_scalar negative abs exp expm1 log log1p sqrt rsqrt
    cbrt reciprocal sin cos erf clip
"""
_MOVING = """
    _copy identity _copyto CopyCPU2CPU CopyCPU2GPU CopyGPU2CPU copy Reshape reshape Flatten expand_dims squeeze
    transpose SwapAxis Concat stack SliceChannel slice slice_axis slice_like Pad tile repeat broadcast_like reverse
    broadcast_to broadcast_axis UpSampling gather_nd one_hot _rnn_param_concat SequenceMask SequenceReverse SequenceLast
"""
_ACTIVATIONS = frozenset({"relu", "sigmoid", "tanh"})

# Counted by elements alone, by the name `tbdprof.analysis.flops` counts them by ("": it has none).
_NAMED: Mapping[str, tuple[Operation, str]] = {
    **dict.fromkeys(("Embedding", "take"), (Operation.EMBEDDING, "embedding")),
    "LayerNorm": (Operation.NORMALIZATION, "layer_norm"),
    "GroupNorm": (Operation.NORMALIZATION, "group_norm"),
    "InstanceNorm": (Operation.NORMALIZATION, "group_norm"),  # of one channel a group
    **{name: (Operation.ACTIVATION, name) for name in _ACTIVATIONS},
    "softmax": (Operation.SOFTMAX, "softmax"),
    "SoftmaxActivation": (Operation.SOFTMAX, "softmax"),
    "masked_softmax": (Operation.SOFTMAX, "softmax"),
    "log_softmax": (Operation.SOFTMAX, "log_softmax"),
    "SoftmaxOutput": (Operation.LOSS, "cross_entropy"),
    "softmax_cross_entropy": (Operation.LOSS, "cross_entropy"),
    "LinearRegressionOutput": (Operation.LOSS, "mse"),
    **dict.fromkeys(("smooth_l1", "CTCLoss", "MakeLoss"), (Operation.LOSS, "")),
    "Dropout": (Operation.ELEMENTWISE, "dropout"),
    **dict.fromkeys(
        (f"{kind}_{name}" for kind in ("elemwise", "broadcast") for name in ("add", "sub", "minus")),
        (Operation.ELEMENTWISE, "add"),
    ),
    **dict.fromkeys(
        ("elemwise_mul", "broadcast_mul", "elemwise_div", "broadcast_div", "_mul", "_div", "square"),
        (Operation.ELEMENTWISE, "multiply"),
    ),
    **dict.fromkeys(_OF_ONE.split(), (Operation.ELEMENTWISE, "scale")),
    **dict.fromkeys(_ARITHMETIC.split(), (Operation.ELEMENTWISE, "add")),
    **dict.fromkeys(("sum", "max", "min", "norm"), (Operation.REDUCTION, "sum")),
    "mean": (Operation.REDUCTION, "mean"),
    "pick": (Operation.REDUCTION, ""),
    **dict.fromkeys(_MOVING.split(), (Operation.COPY, "copy")),
    **dict.fromkeys(
        ("SetValueOp", "_zeros", "_ones", "_full", "zeros_like", "ones_like", "_zeros_without_dtype", "_set_value"),
        (Operation.COPY, "fill"),
    ),
    **dict.fromkeys(("Cast", "amp_cast", "amp_multicast"), (Operation.CAST, "")),
    **dict.fromkeys(("_npi_einsum", "_npi_tensordot", "_npi_tensordot_int_axes"), (Operation.MATMUL, "")),
}
_LEAKY = {**dict.fromkeys(("leaky", "prelu", "rrelu"), "leaky_relu"), "elu": "elu", "selu": "elu", "gelu": "gelu"}
# Optimizers: the name they are counted by, and how many arrays a weight has among the inputs of the ones for several.
_UPDATES = {
    "sgd_update": ("sgd", 2),
    "sgd_mom_update": ("sgd_momentum", 3),
    "nag_mom_update": ("sgd_momentum", 3),
    "adam_update": ("adam", 4),
    "rmsprop_update": ("rmsprop", 3),
}


def operation(name: str) -> Operation:
    """Return what kind of operator one is, or is the gradient of."""
    known = name.removeprefix(_BACKWARD)
    for each in (known, f"_{known}", f"_contrib_{known}", known.replace("np_", "_npi_", 1)):
        if each in _PRODUCTS:
            return _PRODUCTS[each][0]
        if each in _SHAPED:
            return _SHAPED[each][0]
        if each in _NAMED:
            return _NAMED[each][0]
    if known == "DeleteVariable":  # the engine lets an array go
        return Operation.BOOKKEEPING
    if known.endswith("_update"):
        return Operation.OPTIMIZER
    return Operation.COMMUNICATION if known.startswith("KVStore") else Operation.OTHER


def is_product(name: str) -> bool:
    """Tell whether an operator is a product, a convolution or a recurrent layer, or the gradient of one."""
    return operation(name) in (Operation.CONVOLUTION, Operation.MATMUL, Operation.RECURRENT)


def forward(computed: Computed) -> Work | None:
    """Return what an operator computes; None where it is not in the tables or its shapes are not known."""
    arrays = (*computed.inputs, *computed.outputs)
    if not computed.outputs or any(not array.dtype for array in arrays):
        return None
    name, kind = computed.operator, operation(computed.operator)
    moved = sum(map(_bytes, arrays))
    precision = _PRECISIONS.get(computed.outputs[0].dtype, computed.outputs[0].dtype)
    if name in _PRODUCTS:
        sizes, _ = _PRODUCTS[name][1](computed)
        return Work(kind, sizes, moved_bytes=moved, precision=precision)
    if name in _SHAPED:
        counted, sizes = _SHAPED[name][1](computed)
        return Work(kind, sizes, counted, moved_bytes=moved, precision=precision)
    if kind is Operation.OPTIMIZER:
        return _update(computed, moved, precision)
    if kind is Operation.EMBEDDING:
        moved = _bytes(computed.inputs[-1]) + 2 * _bytes(computed.outputs[0])  # of the table, the rows looked up
        return Work(kind, {"elements": _size(computed.outputs[0])}, "embedding", moved_bytes=moved, precision=precision)
    if kind in (Operation.OTHER, Operation.BOOKKEEPING, Operation.MATMUL):
        return None
    counted = _NAMED.get(name, (kind, "add"))[1]
    elements = max(map(_size, arrays))
    if name in ("add_n", "ElementWiseSum"):
        elements *= len(computed.inputs) - 1
    return Work(kind, {"elements": elements}, counted, moved_bytes=moved, precision=precision)


def backward(computed: Computed, gradient: str) -> Work | None:
    """Return what the gradient of an operator computes, by the gradient's own name.

    It reads the gradients of the results and the operands, and writes a gradient for each operand that wants one.
    """
    work = forward(computed)
    if work is None:
        return None
    wanted = [array for array in computed.inputs if array.wanted]
    moved = None if work.moved_bytes is None else work.moved_bytes + sum(map(_bytes, wanted))
    if work.operation is Operation.EMBEDDING:
        moved = work.moved_bytes
    if computed.operator not in _PRODUCTS:
        return replace(work, backward=True, moved_bytes=moved)
    if not gradient.startswith(_BACKWARD):
        return replace(work, backward=True, moved_bytes=None)  # one operator for each of the gradients
    _, products = _PRODUCTS[computed.operator][1](computed)
    return replace(work, backward=True, products=products, moved_bytes=moved)


def _size(array: Array) -> int:
    return math.prod(array.shape)


def _bytes(array: Array) -> int:
    return _size(array) * _ITEM_BYTES.get(array.dtype, 4)


def _number(computed: Computed, name: str) -> int:
    return int(computed.attributes.get(name, "1"))


def _is_set(computed: Computed, name: str) -> bool:
    return computed.attributes.get(name, "False") in ("True", "1", "true")


def _wanted(arrays: Sequence[Array]) -> int:
    return sum(array.wanted for array in arrays)


def _with_bias(sizes: _Sizes, computed: Computed) -> _Sizes:
    return sizes | ({"bias": _size(computed.outputs[0])} if len(computed.inputs) > 2 else {})


def _convolution(computed: Computed) -> tuple[_Sizes, int]:
    weight, made = computed.inputs[1], computed.outputs[0]
    channels = _number(computed, "num_filter")
    sizes = {"weight": _size(weight), "positions": _size(made) // channels}
    return _with_bias(sizes, computed), _wanted(computed.inputs[:2])


def _transposed(computed: Computed) -> tuple[_Sizes, int]:
    data, weight = computed.inputs[:2]
    sizes = {"weight": _size(weight), "positions": _size(data) // weight.shape[0]}
    return _with_bias(sizes, computed), _wanted(computed.inputs[:2])


def _product(batch: int, rows: int, columns: int, inner: int) -> _Sizes:
    return {"batch": batch, "rows": rows, "columns": columns, "inner": inner}


def _dense(computed: Computed) -> tuple[_Sizes, int]:
    columns, inner = computed.inputs[1].shape
    sizes = _product(1, _size(computed.outputs[0]) // columns, columns, inner)
    return _with_bias(sizes, computed), _wanted(computed.inputs[:2])


def _dot(computed: Computed) -> tuple[_Sizes, int]:
    """The last axis of the one and the first of the other are summed over; transposing turns that around."""
    one, other = computed.inputs[:2]
    inner = one.shape[0 if _is_set(computed, "transpose_a") else -1]
    return _product(1, _size(one) // inner, _size(other) // inner, inner), _wanted((one, other))


def _numpy_dot(computed: Computed) -> tuple[_Sizes, int]:
    """The last axis of the one and the last but one of the other are summed over; a lone number multiplies."""
    one, other = computed.inputs
    inner = one.shape[-1] if one.shape and other.shape else 1
    return _product(1, _size(one) // (inner or 1), _size(other) // (inner or 1), inner), _wanted((one, other))


def _numpy_matmul(computed: Computed) -> tuple[_Sizes, int]:
    """A vector is a matrix of one row, or of one column."""
    one, other = computed.inputs
    rows = one.shape[-2] if len(one.shape) > 1 else 1
    columns = other.shape[-1] if len(other.shape) > 1 else 1
    batch = _size(computed.outputs[0]) // (rows * columns or 1)
    return _product(batch, rows, columns, one.shape[-1]), _wanted((one, other))


def _batch_dot(computed: Computed) -> tuple[_Sizes, int]:
    one, other = computed.inputs[:2]
    *batch, rows, columns = computed.outputs[0].shape
    inner = one.shape[-2 if _is_set(computed, "transpose_a") else -1]
    return _product(math.prod(batch), rows, columns, inner), _wanted((one, other))


def _self_scores(computed: Computed) -> tuple[_Sizes, int]:
    """Queries, keys and values lie in one array: time, batch, heads × 3 × width."""
    batch, rows, columns = computed.outputs[0].shape
    heads = _number(computed, "heads")
    return _product(batch, rows, columns, computed.inputs[0].shape[2] // 3 // heads), 2 * _wanted(computed.inputs[:1])


def _scores(computed: Computed) -> tuple[_Sizes, int]:
    """Queries: time, batch, heads × width."""
    batch, rows, columns = computed.outputs[0].shape
    heads = _number(computed, "heads")
    return _product(batch, rows, columns, computed.inputs[0].shape[2] // heads), _wanted(computed.inputs[:2])


def _weighted_values(computed: Computed) -> tuple[_Sizes, int]:
    batch, rows, inner = computed.inputs[1].shape
    heads = _number(computed, "heads")
    return _product(batch, rows, computed.outputs[0].shape[2] // heads, inner), _wanted(computed.inputs[:2])


def _recurrent(computed: Computed) -> tuple[_Sizes, int]:
    """The weight matrices and then two biases a gate lie in one array."""
    data, packed = computed.inputs[:2]
    directions = 2 if _is_set(computed, "bidirectional") else 1
    layers, width = (_number(computed, name) for name in ("num_layers", "state_size"))
    biases = 2 * _GATES[computed.attributes["mode"]] * width * layers * directions
    positions = data.shape[0] * data.shape[1]
    sizes = {"weight": _size(packed) - biases, "positions": positions, "bias": biases * positions}
    return sizes, 1 + packed.wanted  # the gradients of the states are always needed


_PRODUCTS: Mapping[str, tuple[Operation, Callable[[Computed], tuple[_Sizes, int]]]] = {
    "Convolution": (Operation.CONVOLUTION, _convolution),
    "Deconvolution": (Operation.CONVOLUTION, _transposed),
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


def _batch_norm(computed: Computed) -> tuple[str, _Sizes]:
    name = "batch_norm_inference" if _is_set(computed, "use_global_stats") else "batch_norm"
    return name, {"elements": _size(computed.inputs[0])}


def _activation(computed: Computed) -> tuple[str, _Sizes]:
    name = computed.attributes["act_type"]
    return name if name in _ACTIVATIONS else "", {"elements": _size(computed.inputs[0])}


def _leaky(computed: Computed) -> tuple[str, _Sizes]:
    return _LEAKY.get(computed.attributes.get("act_type", "leaky"), ""), {"elements": _size(computed.inputs[0])}


def _pooling(computed: Computed) -> tuple[str, _Sizes]:
    data, made = computed.inputs[0], computed.outputs[0]
    window = math.prod(ast.literal_eval(computed.attributes.get("kernel", "()")))
    if _is_set(computed, "global_pool"):
        window = _size(data) // _size(made)
    name = {"max": "max_pool", "avg": "avg_pool"}.get(computed.attributes.get("pool_type", "max"), "")
    return name, {"elements": _size(made), "window": window}


_SHAPED: Mapping[str, tuple[Operation, Callable[[Computed], tuple[str, _Sizes]]]] = {
    "BatchNorm": (Operation.NORMALIZATION, _batch_norm),
    "Activation": (Operation.ACTIVATION, _activation),
    "LeakyReLU": (Operation.ACTIVATION, _leaky),
    "Pooling": (Operation.POOLING, _pooling),
}


def _update(computed: Computed, moved: int, precision: str) -> Work:
    """The optimizers' own count; several weights at once have their arrays one weight after the other."""
    several = computed.operator.removeprefix("multi_")
    name, arrays = _UPDATES.get(several, ("", 1))
    every = arrays if several != computed.operator else len(computed.inputs)
    elements = sum(map(_size, computed.inputs[::every]))
    return Work(Operation.OPTIMIZER, {"elements": elements}, name, moved_bytes=moved, precision=precision)
