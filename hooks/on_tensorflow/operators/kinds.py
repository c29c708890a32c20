"""Translate TensorFlow's operator types into the vocabulary of all frameworks: the kind, and the name of the count."""

from collections.abc import Mapping, Sequence

from tbdprof.facts.records import Operation

Named = tuple[Operation, str, bool]  # kind, name of its count, whether it is a gradient
Shape = tuple[int, ...] | None  # None if not fully known

GATHERS = ("Gather", "GatherV2")
EINSUM = "Einsum"
_APPLIES = "ResourceApply"  # prefix of the optimizers' operators


def operation(type_name: str) -> Operation:
    """Return the kind of an operator by its type."""
    if type_name.startswith(_APPLIES):
        return Operation.OPTIMIZER
    return NAMED[type_name][0] if type_name in NAMED else _KINDS.get(type_name, Operation.OTHER)


def kind(type_name: str, inputs: Sequence[Shape], outputs: Sequence[Shape], *, reads_variable: bool) -> Operation:
    """Return an operator's kind by its inputs and outputs, as far as they are known, else by its type.

    A lookup of rows is an embedding if the first input is a variable's value. An einsum over one array is a copy.
    """
    if type_name in GATHERS and reads_variable and None not in (*inputs[1:2], *outputs[:1]):
        return Operation.EMBEDDING
    if type_name == EINSUM and len(inputs) == 1 and None not in (*inputs, *outputs):
        return Operation.COPY
    return operation(type_name)


def _named(kind: Operation, name: str, types: str, gradient: bool = False) -> dict[str, Named]:
    return dict.fromkeys(types.split(), (kind, name, gradient))


_SMALL = "Abs Neg Sign Sqrt Rsqrt Exp Expm1 Log Log1p Square Sin Cos Erf Erfc Floor Ceil Round Rint Inv Reciprocal Pow"
_COMPARISONS = "Equal NotEqual Less LessEqual Greater GreaterEqual LogicalAnd LogicalOr LogicalNot IsFinite IsNan IsInf"
_MOVING = """
    Transpose ConjugateTranspose ConcatV2 Concat Pad PadV2 MirrorPad MirrorPadGrad Tile Slice StridedSlice
    StridedSliceGrad Split SplitV Pack Unpack BroadcastTo ReverseV2 ReverseSequence OneHot TensorListStack
    TensorListFromTensor TensorListConcatV2 SpaceToBatchND BatchToSpaceND SpaceToDepth DepthToSpace Copy DeepCopy
    MatrixBandPart MatrixDiagV3 InvertPermutation Where GatherNd TensorScatterUpdate Assign
"""

NAMED: Mapping[str, Named] = {
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
    # Both also compute the gradient's `softmax - target`, which the backward pass scales.
    **_named(Operation.LOSS, "cross_entropy", "SparseSoftmaxCrossEntropyWithLogits SoftmaxCrossEntropyWithLogits"),
    **_named(Operation.NORMALIZATION, "layer_norm", "LayerNorm"),
    **_named(Operation.ELEMENTWISE, "multiply", "Mul MulNoNan"),
    **_named(Operation.ELEMENTWISE, "add", "Add AddV2 Sub Div RealDiv DivNoNan FloorDiv FloorMod Maximum Minimum"),
    **_named(Operation.ELEMENTWISE, "add", "AddN AccumulateNV2 BiasAdd BiasAddV1"),
    **_named(Operation.ELEMENTWISE, "add", "AssignAddVariableOp AssignSubVariableOp AssignAdd AssignSub"),
    **_named(Operation.ELEMENTWISE, "add", f"{_SMALL} {_COMPARISONS} Xdivy Atan2"),
    **_named(Operation.ELEMENTWISE, "add", "SquaredDifference"),
    **_named(Operation.ELEMENTWISE, "add", "SqrtGrad"),
    **_named(Operation.ELEMENTWISE, "add", "RsqrtGrad"),
    **_named(Operation.ELEMENTWISE, "add", "ReciprocalGrad InvGrad"),
    **_named(Operation.ELEMENTWISE, "add", "ClipByValue"),
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

# Operators with a counting rule of their own, operators whose sizes do not say what they compute, and operators that
# move nothing.
_KINDS: Mapping[str, Operation] = {
    name: kind
    for kind, names in {
        Operation.CONVOLUTION: "Conv2D Conv2DBackpropInput Conv2DBackpropFilter Conv3D Conv3DBackpropInput "
        "Conv3DBackpropInputV2 Conv3DBackpropFilter Conv3DBackpropFilterV2 DepthwiseConv2dNative "
        "DepthwiseConv2dNativeBackpropInput DepthwiseConv2dNativeBackpropFilter",
        Operation.MATMUL: f"MatMul BatchMatMul BatchMatMulV2 BatchMatMulV3 {EINSUM} SparseTensorDenseMatMul "
        "SparseMatMul SparseMatrixMatMul SparseMatrixSparseMatMul",
        Operation.NORMALIZATION: "FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3 FusedBatchNormGrad "
        "FusedBatchNormGradV2 FusedBatchNormGradV3",
        Operation.POOLING: "MaxPool MaxPoolV2 MaxPool3D MaxPoolWithArgmax MaxPoolGrad MaxPool3DGrad AvgPool AvgPool3D "
        "AvgPoolGrad AvgPool3DGrad",
        Operation.EMBEDDING: "ResourceGather ResourceScatterAdd ResourceScatterSub",
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
