"""What TensorFlow's operators compute, from their types, attributes and the shapes of their inputs and outputs.

Keras's optimizers are plain arithmetic on variables. They are counted as arithmetic, and belong to the update phase.
Torch's way of updating many weights at once is counted in the same way, so the tables of the two compare.
"""

import math
from collections.abc import Callable, Mapping

from tbdprof.facts.records import Operation
from tbdprof.facts.work import Work
from tbdprof.hooks.on_tensorflow.flops.operands import Computed
from tbdprof.hooks.on_tensorflow.flops.products import PRODUCTS
from tbdprof.hooks.on_tensorflow.operators.kinds import EINSUM, GATHERS, NAMED, Named, operation

# Operations per element, for operators that do more than one.
_TIMES = {
    "SquaredDifference": 2,  # subtract, square
    "SqrtGrad": 3,  # dy·½/y
    "RsqrtGrad": 4,  # dy·-½·y³
    **dict.fromkeys(("ReciprocalGrad", "InvGrad"), 3),  # -dy·y²
    "ClipByValue": 2,
}


def kind_and_work(computed: Computed) -> tuple[Operation, Work | None]:
    """Return an operator's kind and its `Work`; the `Work` is None if there is none or a needed shape is not known."""
    kind = operation(computed.type)
    try:
        work = _work(computed)
    except (LookupError, ValueError, TypeError, ArithmeticError):
        return kind, None  # a shape, an attribute or an operand is not known
    return (kind if work is None else work.operation), work


def _work(computed: Computed) -> Work | None:
    name = computed.type
    if name in PRODUCTS:
        if name == EINSUM and len(computed.inputs) < 2:
            return _elementwise(computed, (Operation.COPY, "copy", False))
        return _product(computed)
    if name in GATHERS:
        return _looked_up(computed)
    if name in _SHAPED:
        counted, sizes, is_gradient = _SHAPED[name]
        kind, moved = operation(name), computed.moved_bytes
        return Work(kind, sizes(computed), counted(computed), is_gradient, 1, moved, computed.precision)
    return _elementwise(computed, NAMED[name]) if name in NAMED else None


def _product(computed: Computed) -> Work:
    bias = {"bias": _biased(computed)} if computed.has_bias else {}
    return Work(
        operation(computed.type),
        PRODUCTS[computed.type](computed) | bias,
        backward=computed.is_backward,
        products=2 if computed.type.startswith("CudnnRNNBackprop") else 1,  # gradients of the input and the weights
        moved_bytes=computed.moved_bytes,
        precision="tf32" if computed.in_tf32 and computed.precision == "fp32" else computed.precision,
    )


def _biased(computed: Computed) -> int:
    """Return how many elements a bias is added to in the forward pass, or its gradient is summed from."""
    return computed.inputs[2].elements if computed.type.endswith("Filter") else computed.result.elements


def _looked_up(computed: Computed) -> Work | None:
    """Count a lookup of rows: it is an embedding if the table is a variable; it reads as much of it as it writes."""
    if not computed.inputs[0].is_variable:
        return None
    made, indices = computed.result, computed.inputs[1]
    sizes, moved = {"elements": made.elements}, 2 * made.bytes + indices.bytes
    return Work(Operation.EMBEDDING, sizes, "embedding", moved_bytes=moved, precision=computed.precision)


def _elementwise(computed: Computed, named: Named) -> Work:
    kind, counted, is_gradient = named
    arrays = (*computed.inputs, *computed.outputs)
    is_sum = computed.type in ("AddN", "AccumulateNV2")
    times = len(computed.inputs) - 1 if is_sum else _TIMES.get(computed.type, 1)
    elements = times * max(array.elements for array in arrays)
    return Work(kind, {"elements": elements}, counted, is_gradient, 1, computed.moved_bytes, computed.precision)


def _first(computed: Computed) -> dict[str, int]:
    return {"elements": computed.inputs[0].elements}


def _largest(computed: Computed) -> dict[str, int]:
    return {"elements": max(array.elements for array in computed.inputs)}


def _made(computed: Computed) -> dict[str, int]:
    return {"elements": computed.result.elements}


def _pooled(computed: Computed) -> dict[str, int]:
    return {"elements": computed.result.elements, "window": math.prod(computed.attributes["ksize"])}


def _pooled_gradient(computed: Computed) -> dict[str, int]:
    """The gradient of the result is the second operand of an average's gradient and the third of a maximum's."""
    gradient = computed.inputs[2 if computed.type.startswith("Max") else 1]
    return {"elements": gradient.elements, "window": math.prod(computed.attributes["ksize"])}


def _batch_norm(computed: Computed) -> str:
    return "batch_norm" if computed.attributes.get("is_training", True) else "batch_norm_inference"


def _always(name: str) -> Callable[[Computed], str]:
    return lambda _computed: name


Sizer = Callable[[Computed], dict[str, int]]

_NORMS = ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
_NORM_GRADIENTS = ("FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3")

_SHAPED: Mapping[str, tuple[Callable[[Computed], str], Sizer, bool]] = {
    **dict.fromkeys(_NORMS, (_batch_norm, _first, False)),
    **dict.fromkeys(_NORM_GRADIENTS, (_batch_norm, _first, True)),
    **dict.fromkeys(
        ("MaxPool", "MaxPoolV2", "MaxPool3D", "MaxPoolWithArgmax"),
        (_always("max_pool"), _pooled, False),
    ),
    **dict.fromkeys(("AvgPool", "AvgPool3D"), (_always("avg_pool"), _pooled, False)),
    **dict.fromkeys(("MaxPoolGrad", "MaxPool3DGrad"), (_always("max_pool"), _pooled_gradient, True)),
    **dict.fromkeys(("AvgPoolGrad", "AvgPool3DGrad"), (_always("avg_pool"), _pooled_gradient, True)),
    "ResourceGather": (_always("embedding"), _made, False),
    **dict.fromkeys(
        ("ResourceScatterAdd", "ResourceScatterSub"),
        (_always("embedding"), lambda computed: {"elements": computed.inputs[2].elements}, True),
    ),
    **{
        f"ResourceApply{name}": (_always(counted), _largest, False)
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
