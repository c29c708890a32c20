"""What MXNet's operators compute, from their attributes and the shapes of their inputs and outputs."""

import ast
import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from tbdprof.facts.records import Operation
from tbdprof.facts.work import Work
from tbdprof.hooks.on_mxnet.flops import sparse
from tbdprof.hooks.on_mxnet.flops.products import PRODUCTS, Computed, Sizes, is_set, size_of
from tbdprof.hooks.on_mxnet.session.calls import Array
from tbdprof.hooks.on_mxnet.session.graphs import FUSED

_PRECISIONS = {"float32": "fp32", "float64": "fp64", "float16": "fp16"}
_ITEM_BYTES = {"float32": 4, "float64": 8, "float16": 2, "uint8": 1, "int32": 4, "int8": 1, "int64": 8, "bool": 1}
_BACKWARD = "_backward_"

_ARITHMETIC = """
    _plus _minus _plus_scalar _minus_scalar _rminus_scalar broadcast_maximum broadcast_minimum broadcast_equal where
    add_n _grad_add ElementWiseSum add _maximum _minimum _equal _greater _lesser
    _equal_scalar _not_equal_scalar _greater_scalar _greater_equal_scalar _lesser_scalar _lesser_equal_scalar
    broadcast_not_equal broadcast_greater broadcast_greater_equal broadcast_lesser broadcast_lesser_equal
    broadcast_logical_and broadcast_logical_or logical_not
"""
_OF_ONE = """
    _mul_scalar _div_scalar _rdiv_scalar _maximum_scalar _minimum_scalar negative abs exp expm1 log log1p sqrt rsqrt
    cbrt rcbrt reciprocal sin cos tan sinh cosh arcsin arccos arctan arcsinh arccosh arctanh erf erfinv clip
    log2 log10 sign floor ceil round rint trunc fix _power_scalar _rpower_scalar _mod_scalar softsign
"""
_MOVING = """
    _copy identity _copyto CopyCPU2CPU CopyCPU2GPU CopyGPU2CPU CopyGPU2GPU _copyto_GPU2GPU copy Reshape reshape Flatten
    expand_dims squeeze
    transpose SwapAxis Concat stack SliceChannel slice slice_axis slice_like Pad tile repeat broadcast_like reverse
    broadcast_to broadcast_axis _slice_assign _slice_assign_scalar Crop flip diag cast_storage
    UpSampling gather_nd one_hot _rnn_param_concat SequenceMask SequenceReverse SequenceLast
"""
_ACTIVATIONS = frozenset({"relu", "sigmoid", "tanh"})

# Counted per element, under a name in `tbdprof.analysis.kernels.flops` ("" if it has no count there).
_NAMED: Mapping[str, tuple[Operation, str]] = {
    **dict.fromkeys(("Embedding", "_contrib_SparseEmbedding", "take"), (Operation.EMBEDDING, "embedding")),
    "LayerNorm": (Operation.NORMALIZATION, "layer_norm"),
    "GroupNorm": (Operation.NORMALIZATION, "group_norm"),
    "InstanceNorm": (Operation.NORMALIZATION, "group_norm"),  # one channel per group
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
        (
            *("elemwise_mul", "broadcast_mul", "elemwise_div", "broadcast_div", "_mul", "_div", "square"),
            *("_power", "broadcast_power", "_mod", "broadcast_mod"),
        ),
        (Operation.ELEMENTWISE, "multiply"),
    ),
    **dict.fromkeys(_OF_ONE.split(), (Operation.ELEMENTWISE, "scale")),
    **dict.fromkeys(_ARITHMETIC.split(), (Operation.ELEMENTWISE, "add")),
    **dict.fromkeys(("sum", "max", "min", "norm", "argmax", "argmin"), (Operation.REDUCTION, "sum")),
    "hard_sigmoid": (Operation.ACTIVATION, "hardsigmoid"),
    "softmin": (Operation.SOFTMAX, "softmax"),
    "LogisticRegressionOutput": (Operation.LOSS, "sigmoid"),
    "mean": (Operation.REDUCTION, "mean"),
    "pick": (Operation.REDUCTION, ""),
    **dict.fromkeys(_MOVING.split(), (Operation.COPY, "copy")),
    **dict.fromkeys(
        (
            "SetValueOp",
            "_arange",
            "_zeros",
            "_ones",
            "_full",
            "zeros_like",
            "ones_like",
            "_zeros_without_dtype",
            "_set_value",
        ),
        (Operation.COPY, "fill"),
    ),
    **dict.fromkeys(("Cast", "amp_cast", "amp_multicast"), (Operation.CAST, "")),
    "khatri_rao": (Operation.ELEMENTWISE, "multiply"),
    **dict.fromkeys(
        (
            *("_npi_einsum", "_npi_tensordot", "_npi_tensordot_int_axes", "_linalg_syrk", "_linalg_trmm"),
            *("_contrib_sldwin_atten_score", "_contrib_sldwin_atten_context"),
        ),
        (Operation.MATMUL, ""),
    ),
    "Correlation": (Operation.CONVOLUTION, ""),
}
_LEAKY = {**dict.fromkeys(("leaky", "prelu", "rrelu"), "leaky_relu"), "elu": "elu", "selu": "elu", "gelu": "gelu"}
# The engine frees an array or an operator of a graph, or waits: no operator of the script's, and nothing is computed.
ENGINES_OWN = frozenset({"DeleteVariable", "DeleteOperator", "WaitForVar"})
# Optimizers: the name in the FLOP tables, and how many input arrays each weight has in a fused update of several.
_UPDATES = {
    "sgd_update": ("sgd", 2),
    "sgd_mom_update": ("sgd_momentum", 3),
    "nag_mom_update": ("sgd_momentum", 3),
    "adam_update": ("adam", 4),
    "rmsprop_update": ("rmsprop", 3),
}


def operation(name: str) -> Operation:
    """Return the kind of an operator, or of the operator that it is the gradient of."""
    known = name.removeprefix(_BACKWARD)
    for each in (known, f"_{known}", f"_contrib_{known}", known.replace("np_", "_npi_", 1)):
        if each in PRODUCTS:
            return PRODUCTS[each][0]
        if each in _SHAPED:
            return _SHAPED[each][0]
        if each in _NAMED:
            return _NAMED[each][0]
    if known in ENGINES_OWN:
        return Operation.BOOKKEEPING
    if known == FUSED:
        return Operation.ELEMENTWISE
    if known.endswith("_update"):
        return Operation.OPTIMIZER
    return Operation.COMMUNICATION if known.startswith("KVStore") else Operation.OTHER


def is_product(name: str) -> bool:
    """Return whether an operator is a matmul, a convolution, a recurrent layer, or the gradient of one."""
    return operation(name) in (Operation.CONVOLUTION, Operation.MATMUL, Operation.RECURRENT)


def forward(computed: Computed) -> Work | None:
    """Return what an operator computes, or None if it is not in the tables or its sizes are not known.

    Of operators on sparse arrays only products have sizes (and lookups, which depend on their indices alone).
    """
    arrays = (*computed.inputs, *computed.outputs)
    if not computed.outputs or any(not array.dtype for array in arrays):
        return None
    name, kind = computed.operator, operation(computed.operator)
    moved = sum(map(_bytes, arrays))
    precision = _PRECISIONS.get(computed.outputs[0].dtype, computed.outputs[0].dtype)
    if sparse.is_sparse(computed) and kind is not Operation.EMBEDDING:
        of_values = sparse.product(computed, PRODUCTS[name][1](computed)[0]) if name in PRODUCTS else None
        return None if of_values is None else Work(kind, of_values, precision=precision)
    if name in PRODUCTS:
        sizes, _ = PRODUCTS[name][1](computed)
        return Work(kind, sizes, moved_bytes=moved, precision=precision)
    if name in _SHAPED:
        counted, sizes = _SHAPED[name][1](computed)
        return Work(kind, sizes, counted, moved_bytes=moved, precision=precision)
    if kind is Operation.OPTIMIZER:
        return _update(computed, moved, precision)
    if kind is Operation.EMBEDDING:
        indices = computed.inputs[1 if name == "take" else 0]
        moved = _bytes(indices) + 2 * _bytes(computed.outputs[0])  # of the table, only the rows looked up
        sizes = {"elements": size_of(computed.outputs[0])}
        return Work(kind, sizes, "embedding", moved_bytes=moved, precision=precision)
    if kind in (Operation.OTHER, Operation.BOOKKEEPING, Operation.MATMUL, Operation.CONVOLUTION):
        return None
    counted = _NAMED.get(name, (kind, "add"))[1]
    elements = max(map(size_of, arrays))
    if name in ("add_n", "ElementWiseSum"):
        elements *= len(computed.inputs) - 1
    return Work(kind, {"elements": elements}, counted, moved_bytes=moved, precision=precision)


def backward(computed: Computed, gradient: str) -> Work | None:
    """Return what the gradient of an operator computes; `gradient` is the name of the gradient operator.

    It reads the gradients of the results and the operands. It writes a gradient for each operand that needs one.
    """
    work = forward(computed)
    if work is None:
        return None
    wanted = [array for array in computed.inputs if array.wanted]
    moved = None if work.moved_bytes is None else work.moved_bytes + sum(map(_bytes, wanted))
    if work.operation is Operation.EMBEDDING:
        moved = work.moved_bytes
    if computed.operator not in PRODUCTS:
        return replace(work, backward=True, moved_bytes=moved)
    if not sparse.has_dense_gradients(computed):
        return None
    if not gradient.startswith(_BACKWARD):
        return replace(work, backward=True, moved_bytes=None)  # a separate operator for each gradient
    _, products = PRODUCTS[computed.operator][1](computed)
    return replace(work, backward=True, products=products, moved_bytes=moved)


def _bytes(array: Array) -> int:
    return size_of(array) * _ITEM_BYTES.get(array.dtype, 4)


def _batch_norm(computed: Computed) -> tuple[str, Sizes]:
    name = "batch_norm_inference" if is_set(computed, "use_global_stats") else "batch_norm"
    return name, {"elements": size_of(computed.inputs[0])}


def _activation(computed: Computed) -> tuple[str, Sizes]:
    name = computed.attributes["act_type"]
    return name if name in _ACTIVATIONS else "", {"elements": size_of(computed.inputs[0])}


def _leaky(computed: Computed) -> tuple[str, Sizes]:
    return _LEAKY.get(computed.attributes.get("act_type", "leaky"), ""), {"elements": size_of(computed.inputs[0])}


def _pooling(computed: Computed) -> tuple[str, Sizes]:
    data, made = computed.inputs[0], computed.outputs[0]
    window = math.prod(ast.literal_eval(computed.attributes.get("kernel", "()")))
    if is_set(computed, "global_pool"):
        window = size_of(data) // size_of(made)
    name = {"max": "max_pool", "avg": "avg_pool"}.get(computed.attributes.get("pool_type", "max"), "")
    return name, {"elements": size_of(made), "window": window}


_SHAPED: Mapping[str, tuple[Operation, Callable[[Computed], tuple[str, Sizes]]]] = {
    "BatchNorm": (Operation.NORMALIZATION, _batch_norm),
    "Activation": (Operation.ACTIVATION, _activation),
    "LeakyReLU": (Operation.ACTIVATION, _leaky),
    "Pooling": (Operation.POOLING, _pooling),
}


def _update(computed: Computed, moved: int, precision: str) -> Work:
    """Count an optimizer's update; in a fused update, the arrays of one weight follow those of another."""
    several = computed.operator.removeprefix("multi_")
    name, arrays = _UPDATES.get(several, ("", 1))
    every = arrays if several != computed.operator else len(computed.inputs)
    elements = sum(map(size_of, computed.inputs[::every]))
    return Work(Operation.OPTIMIZER, {"elements": elements}, name, moved_bytes=moved, precision=precision)
