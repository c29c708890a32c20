"""What TensorFlow's operators compute, from their type, attributes and the shapes of what they take and make.

The optimizers of Keras are plain arithmetic on variables: it is counted as that, and the phase, update, tells it apart.
So is torch's own way of updating many weights at once, and the tables of the two compare.
"""

import math
from collections.abc import Callable, Mapping

from tbdprof.facts.records import Operation
from tbdprof.facts.work import Work
from tbdprof.hooks.on_tensorflow.flops.operands import Computed
from tbdprof.hooks.on_tensorflow.flops.products import PRODUCTS

Rule = tuple[Operation, str, int, bool]  # kind, name it is counted by, operations an element, whether a gradient


def told(computed: Computed) -> tuple[Operation, Work | None]:
    """Return an operator's kind and its work, None where it has none or a shape it takes is not known."""
    kind = operation(computed.type)
    try:
        work = _work(computed)
    except (LookupError, ValueError, TypeError, ArithmeticError):
        return kind, None  # a shape, an attribute or an operand is not told
    return (kind if work is None else work.operation), work


def operation(type_name: str) -> Operation:
    """Return the kind of an operator by its type."""
    if type_name in PRODUCTS:
        return PRODUCTS[type_name][0]
    if type_name in _SHAPED:
        return _SHAPED[type_name][0]
    if type_name.startswith("ResourceApply"):
        return Operation.OPTIMIZER
    return _NAMED.get(type_name, (_KINDS.get(type_name, Operation.OTHER),))[0]


def _work(computed: Computed) -> Work | None:
    name = computed.type
    if name in PRODUCTS:
        if name == "Einsum" and len(computed.inputs) < 2:
            return _elementwise(computed, (Operation.COPY, "copy", 1, False))
        return _product(computed)
    if name in _GATHERS:
        return _looked_up(computed)
    if name in _SHAPED:
        kind, counted, sizes, is_gradient = _SHAPED[name]
        return Work(kind, sizes(computed), counted(computed), is_gradient, 1, computed.moved_bytes, computed.precision)
    return _elementwise(computed, _NAMED[name]) if name in _NAMED else None


def _product(computed: Computed) -> Work:
    kind, sizes = PRODUCTS[computed.type]
    bias = {"bias": _biased(computed)} if computed.has_bias else {}
    return Work(
        kind,
        sizes(computed) | bias,
        backward=computed.is_backward,
        moved_bytes=computed.moved_bytes,
        precision="tf32" if computed.in_tf32 and computed.precision == "fp32" else computed.precision,
    )


def _biased(computed: Computed) -> int:
    """Return how many elements a bias is added to, or summed from: of the map put out forward."""
    return computed.inputs[2].elements if computed.type.endswith("Filter") else computed.result.elements


def _looked_up(computed: Computed) -> Work | None:
    """Rows of a variable are an embedding's; of it as much is read as is written."""
    if not computed.inputs[0].is_variable:
        return None
    made, indices = computed.result, computed.inputs[1]
    sizes, moved = {"elements": made.elements}, 2 * made.bytes + indices.bytes
    return Work(Operation.EMBEDDING, sizes, "embedding", moved_bytes=moved, precision=computed.precision)


def _elementwise(computed: Computed, rule: Rule) -> Work:
    kind, counted, times, is_gradient = rule
    arrays = (*computed.inputs, *computed.outputs)
    if computed.type in ("AddN", "AccumulateNV2"):
        times = len(computed.inputs) - 1
    elements = times * max(array.elements for array in arrays)
    return Work(kind, {"elements": elements}, counted, is_gradient, 1, computed.moved_bytes, computed.precision)


def _named(kind: Operation, name: str, types: str, times: int = 1, gradient: bool = False) -> dict[str, Rule]:
    return dict.fromkeys(types.split(), (kind, name, times, gradient))


_SMALL = "Abs Neg Sign Sqrt Rsqrt Exp Expm1 Log Log1p Square Sin Cos Erf Erfc Floor Ceil Round Rint Inv Reciprocal Pow"
_COMPARISONS = "Equal NotEqual Less LessEqual Greater GreaterEqual LogicalAnd LogicalOr LogicalNot IsFinite IsNan IsInf"
_MOVING = """
    Transpose ConjugateTranspose ConcatV2 Concat Pad PadV2 MirrorPad MirrorPadGrad Tile Slice StridedSlice
    StridedSliceGrad Split SplitV Pack Unpack BroadcastTo ReverseV2 ReverseSequence OneHot TensorListStack
    TensorListFromTensor TensorListConcatV2 SpaceToBatchND BatchToSpaceND SpaceToDepth DepthToSpace Copy DeepCopy
    MatrixBandPart MatrixDiagV3 InvertPermutation Where GatherNd TensorScatterUpdate Assign
"""

_NAMED: Mapping[str, Rule] = {
    **_named(Operation.ACTIVATION, "relu", "Relu"),
    **_named(Operation.ACTIVATION, "relu", "ReluGrad", gradient=True),
    **_named(Operation.ACTIVATION, "hardtanh", "Relu6"),
    **_named(Operation.ACTIVATION, "hardtanh", "Relu6Grad", gradient=True),
    **_named(Operation.ACTIVATION, "leaky_relu", "LeakyRelu"),
    **_named(Operation.ACTIVATION, "leaky_relu", "LeakyReluGrad", gradient=True),
    **_named(Operation.ACTIVATION, "elu", "Elu Selu"),
    **_named(Operation.ACTIVATION, "elu", "EluGrad SeluGrad", gradient=True),
    **_named(Operation.ACTIVATION, "sigmoid", "Sigmoid"),
    **_named(Operation.ACTIVATION, "sigmoid", "SigmoidGrad", gradient=True),
    **_named(Operation.ACTIVATION, "tanh", "Tanh"),
    **_named(Operation.ACTIVATION, "tanh", "TanhGrad", gradient=True),
    **_named(Operation.ACTIVATION, "softplus", "Softplus"),
    **_named(Operation.ACTIVATION, "softplus", "SoftplusGrad", gradient=True),
    **_named(Operation.ACTIVATION, "silu", "Swish"),
    **_named(Operation.ACTIVATION, "mish", "Mish"),
    **_named(Operation.ACTIVATION, "gelu", "Gelu"),
    **_named(Operation.SOFTMAX, "softmax", "Softmax"),
    **_named(Operation.SOFTMAX, "log_softmax", "LogSoftmax"),
    # Both compute the gradient's `softmax - target` besides, which is scaled in the backward pass.
    **_named(Operation.LOSS, "cross_entropy", "SparseSoftmaxCrossEntropyWithLogits SoftmaxCrossEntropyWithLogits"),
    **_named(Operation.NORMALIZATION, "layer_norm", "LayerNorm"),
    **_named(Operation.ELEMENTWISE, "multiply", "Mul MulNoNan"),
    **_named(Operation.ELEMENTWISE, "add", "Add AddV2 Sub Div RealDiv DivNoNan FloorDiv FloorMod Maximum Minimum"),
    **_named(Operation.ELEMENTWISE, "add", "AddN AccumulateNV2 BiasAdd BiasAddV1"),
    **_named(Operation.ELEMENTWISE, "add", "AssignAddVariableOp AssignSubVariableOp AssignAdd AssignSub"),
    **_named(Operation.ELEMENTWISE, "add", f"{_SMALL} {_COMPARISONS} Xdivy Atan2"),
    **_named(Operation.ELEMENTWISE, "add", "SquaredDifference", times=2),  # subtract, square
    **_named(Operation.ELEMENTWISE, "add", "SqrtGrad", times=3),  # dy·½/y
    **_named(Operation.ELEMENTWISE, "add", "RsqrtGrad", times=4),  # dy·-½·y³
    **_named(Operation.ELEMENTWISE, "add", "ReciprocalGrad InvGrad", times=3),  # -dy·y²
    **_named(Operation.ELEMENTWISE, "add", "ClipByValue", times=2),
    **_named(Operation.ELEMENTWISE, "copy", "Select SelectV2"),
    **_named(
        Operation.ELEMENTWISE,
        "random",
        "RandomUniform RandomStandardNormal TruncatedNormal StatelessRandomUniformV2 StatelessRandomNormalV2 "
        "StatelessTruncatedNormalV2 RandomUniformInt Multinomial",
    ),
    **_named(Operation.REDUCTION, "sum", "Sum Max Min Prod All Any Cumsum BiasAddGrad"),
    **_named(Operation.REDUCTION, "sum", "UnsortedSegmentSum SegmentSum"),
    **_named(Operation.REDUCTION, "mean", "Mean"),
    **_named(Operation.REDUCTION, "norm", "L2Loss EuclideanNorm"),
    **_named(Operation.COPY, "copy", _MOVING),
    **_named(Operation.COPY, "fill", "Fill ZerosLike OnesLike Range Empty"),
    **_named(Operation.CAST, "cast", "Cast Bitcast"),
}

# Operators of which the sizes do not tell what they compute, and those that move nothing.
_KINDS: Mapping[str, Operation] = {
    name: kind
    for kind, names in {
        Operation.SOFTMAX: "SparseSoftmax",
        Operation.LOSS: "CTCLoss CTCLossV2",
        Operation.REDUCTION: "ArgMax ArgMin TopKV2 SparseSegmentSum SparseSegmentMean",
        Operation.RECURRENT: "CudnnRNN CudnnRNNV3 CudnnRNNBackprop CudnnRNNBackpropV3 BlockLSTMV2 BlockLSTMGradV2 "
        "LSTMBlockCell GRUBlockCell GRUBlockCellGrad",
        Operation.ELEMENTWISE: "ResizeNearestNeighbor ResizeBilinear ResizeNearestNeighborGrad ResizeBilinearGrad",
        Operation.COMMUNICATION: "CollectiveReduceV2 CollectiveGatherV2 CollectiveBcastSendV2 CollectiveBcastRecvV2 "
        "NcclAllReduce",
        Operation.BOOKKEEPING: "Identity IdentityN ReadVariableOp AssignVariableOp VarHandleOp Const Placeholder NoOp "
        "Shape ShapeN Size Rank Reshape Squeeze ExpandDims StopGradient PreventGradient Snapshot Switch Merge Enter "
        "Exit NextIteration LoopCond _Arg _Retval _Send _Recv _HostSend _HostRecv BroadcastGradientArgs BroadcastArgs "
        "VariableShape OptionalFromValue OptionalGetValue OptionalHasValue OptionalNone EnsureShape TensorListReserve "
        "TensorListGetItem TensorListSetItem TensorListPushBack TensorListPopBack TensorListElementShape "
        "EmptyTensorList TensorListLength TensorListResize DestroyResourceOp VarIsInitializedOp "
        "StatelessRandomGetKeyCounter StatelessRandomGetAlg ControlTrigger Assert MakeIterator AnonymousIteratorV3 "
        "DeleteIterator _EagerConst TemporaryVariable DestroyTemporaryVariable RngReadAndSkip",
    }.items()
    for name in names.split()
}


_GATHERS = ("Gather", "GatherV2")


def _first(computed: Computed) -> dict[str, int]:
    return {"elements": computed.inputs[0].elements}


def _largest(computed: Computed) -> dict[str, int]:
    return {"elements": max(array.elements for array in computed.inputs)}


def _made(computed: Computed) -> dict[str, int]:
    return {"elements": computed.result.elements}


def _pooled(computed: Computed) -> dict[str, int]:
    return {"elements": computed.result.elements, "window": math.prod(computed.attributes["ksize"])}


def _pooled_gradient(computed: Computed) -> dict[str, int]:
    """The gradient of the results is the second operand of an average's, the third of a maximum's."""
    gradient = computed.inputs[2 if computed.type.startswith("Max") else 1]
    return {"elements": gradient.elements, "window": math.prod(computed.attributes["ksize"])}


def _batch_norm(computed: Computed) -> str:
    return "batch_norm" if computed.attributes.get("is_training", True) else "batch_norm_inference"


def _always(name: str) -> Callable[[Computed], str]:
    return lambda _computed: name


Sizer = Callable[[Computed], dict[str, int]]

_NORMS = ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
_NORM_GRADIENTS = ("FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3")

_SHAPED: Mapping[str, tuple[Operation, Callable[[Computed], str], Sizer, bool]] = {
    **dict.fromkeys(_NORMS, (Operation.NORMALIZATION, _batch_norm, _first, False)),
    **dict.fromkeys(_NORM_GRADIENTS, (Operation.NORMALIZATION, _batch_norm, _first, True)),
    **dict.fromkeys(
        ("MaxPool", "MaxPoolV2", "MaxPool3D", "MaxPoolWithArgmax"),
        (Operation.POOLING, _always("max_pool"), _pooled, False),
    ),
    **dict.fromkeys(("AvgPool", "AvgPool3D"), (Operation.POOLING, _always("avg_pool"), _pooled, False)),
    **dict.fromkeys(("MaxPoolGrad", "MaxPool3DGrad"), (Operation.POOLING, _always("max_pool"), _pooled_gradient, True)),
    **dict.fromkeys(("AvgPoolGrad", "AvgPool3DGrad"), (Operation.POOLING, _always("avg_pool"), _pooled_gradient, True)),
    "ResourceGather": (Operation.EMBEDDING, _always("embedding"), _made, False),
    **dict.fromkeys(
        ("ResourceScatterAdd", "ResourceScatterSub"),
        (Operation.EMBEDDING, _always("embedding"), lambda computed: {"elements": computed.inputs[2].elements}, True),
    ),
    **{
        f"ResourceApply{name}": (Operation.OPTIMIZER, _always(counted), _largest, False)
        for name, counted in {
            "GradientDescent": "sgd",
            "Momentum": "sgd_momentum",
            "KerasMomentum": "sgd_momentum",
            "Adam": "adam",
            "RMSProp": "rmsprop",
            "AdagradV2": "adagrad",
        }.items()
    },
}
