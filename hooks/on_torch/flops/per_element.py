"""Operators counted per element: normalization, activation, pooling, losses, arithmetic, copies, updates."""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from tbdprof.facts.records import Operation
from tbdprof.facts.work import Work
from tbdprof.hooks.on_torch.flops.operands import (
    Arguments,
    Rule,
    broadcast,
    deciding,
    number,
    numbers,
    precision,
    rule_for,
    tensor,
    tensors,
    total_bytes,
    work_per_element,
)
from tbdprof.hooks.on_torch.flops.pooling import POOLING

# Bytes per element, by torch's number of a data type.
_ITEM_BYTES = {0: 1, 1: 1, 2: 2, 3: 4, 4: 8, 5: 2, 6: 4, 7: 8, 9: 8, 10: 16, 11: 1, 15: 2}


def _elementwise(
    arguments: Arguments,
    *,
    name: str,
    kind: Operation = Operation.ELEMENTWISE,
    backward: bool = False,
    item_bytes: int | None = None,
) -> Work:
    """Read every tensor and write one of their broadcast shape; for lists, write one tensor for each of the first list.

    `item_bytes` is the size of a written element; None means the size of a read one.
    """
    if isinstance(arguments[0], tuple):
        first = arguments[:1]
        elements = sum(each.elements for each in tensors(first))
        return work_per_element(kind, name, elements, arguments, total_bytes(first), backward=backward)
    elements = broadcast([each.shape for each in tensors(arguments)])
    item_bytes = item_bytes or max(each.item_bytes for each in deciding(arguments))
    return work_per_element(kind, name, elements, arguments, elements * item_bytes, backward=backward)


def _normalization(arguments: Arguments, *, name: str, backward: bool = False, training: int | None = None) -> Work:
    """Write one tensor as large as the first; the flag at `training` says whether it uses the batch's statistics."""
    given = tensor(arguments[0])
    name = name if training is None or arguments[training] else f"{name}_inference"
    return work_per_element(Operation.NORMALIZATION, name, given.elements, arguments, given.bytes, backward=backward)


def _reduction(arguments: Arguments, *, name: str) -> Work:
    """Args: input and, if reported, the dimensions to reduce over. Without dimensions, reduce over all."""
    given = tensor(arguments[0])
    named = arguments[1] if len(arguments) > 1 and isinstance(arguments[1], tuple) else ()
    over = {place % len(given.shape) for place in numbers(named)} if given.shape else set()
    left = math.prod(size for place, size in enumerate(given.shape) if over and place not in over)
    return work_per_element(Operation.REDUCTION, name, given.elements, arguments[:1], left * given.item_bytes)


def _vector_norm(arguments: Arguments) -> Work:
    """Args: input, order and, if reported, the dimensions. Without dimensions, reduce over all."""
    return _reduction((arguments[0], *arguments[2:3]), name="norm")


def _norms(arguments: Arguments) -> Work:
    """Args: a list of tensors. Each one is read, and one number per tensor is written."""
    given = list(tensors(arguments[:1]))
    written = sum(each.item_bytes for each in given)
    return work_per_element(Operation.REDUCTION, "norm", sum(each.elements for each in given), arguments[:1], written)


def _samples(arguments: Arguments) -> Work:
    """Args: scores and targets. One score is picked for each target."""
    scores, targets = tensor(arguments[0]), tensor(arguments[1])
    work = work_per_element(
        Operation.LOSS, "nll_loss", targets.elements, (targets,), targets.elements * scores.item_bytes
    )
    return replace(work, precision=precision(arguments))


def _samples_backward(arguments: Arguments) -> Work:
    """Args: gradient, scores, targets. A gradient of all scores is written."""
    scores, targets = tensor(arguments[1]), tensor(arguments[2])
    work = work_per_element(
        Operation.LOSS, "nll_loss", targets.elements, (arguments[0], targets), scores.bytes, backward=True
    )
    return replace(work, precision=precision(arguments))


def _embedding(arguments: Arguments) -> Work:
    """Args: weight, indices. As much of the weight is read as is written."""
    weight, indices = tensor(arguments[0]), tensor(arguments[1])
    elements = indices.elements * weight.shape[1]
    work = work_per_element(Operation.EMBEDDING, "embedding", elements, (indices,), 2 * elements * weight.item_bytes)
    return replace(work, precision=precision(arguments))


def _embedding_backward(arguments: Arguments) -> Work:
    """Args: gradient, indices, rows of the weight. A gradient of the whole weight is written."""
    gradient = tensor(arguments[0])
    written = number(arguments[2]) * gradient.shape[-1] * gradient.item_bytes
    return work_per_element(Operation.EMBEDDING, "embedding", gradient.elements, arguments[:2], written, backward=True)


def _update(arguments: Arguments, *, name: str, with_state: str = "") -> Work:
    """Args: lists of weights, gradients and states, then settings. All are read; all but the gradients are written."""
    lists = arguments[: next(place for place, each in enumerate(arguments) if not isinstance(each, tuple))]
    written = total_bytes(lists) - total_bytes(lists[1:2])
    elements = sum(each.elements for each in tensors(lists[:1]))
    name = with_state if with_state and any(tensors(lists[2:])) else name
    return work_per_element(Operation.OPTIMIZER, name, elements, lists, written)


def _filled(arguments: Arguments, *, name: str, kind: Operation) -> Work:
    """Args: a tensor, or a list of tensors, that is written without being read."""
    return work_per_element(kind, name, sum(each.elements for each in tensors(arguments[:1])), arguments[:1], 0)


def _copy(arguments: Arguments) -> Work:
    """Args: target, source."""
    target, source = tensor(arguments[0]), tensor(arguments[1])
    return work_per_element(Operation.COPY, "copy", target.elements, (source,), target.bytes)


def _copies(arguments: Arguments) -> Work:
    """Args: a tensor, or a list of tensors, to copy."""
    elements = sum(each.elements for each in tensors(arguments[:1]))
    return work_per_element(Operation.COPY, "copy", elements, arguments[:1], total_bytes(arguments[:1]))


def _cast(arguments: Arguments) -> Work:
    """Args: the tensor, and the number of the data type to copy it into."""
    given, number_of_type = tensor(arguments[0]), arguments[1]
    item_bytes = _ITEM_BYTES.get(number_of_type, 0) if isinstance(number_of_type, int) else given.item_bytes
    return work_per_element(Operation.CAST, "cast", given.elements, arguments[:1], given.elements * item_bytes)


def _words(names: str) -> dict[str, str]:
    return {word: word for word in names.split()}


def _named(name: str, operators: str) -> dict[str, str]:
    return dict.fromkeys(operators.split(), name)


_ARITHMETIC = {
    **_named(
        "add",
        "add sub rsub div abs neg sqrt rsqrt exp log log1p log2 pow square reciprocal sin cos erf floor ceil round sgn "
        "sign clamp clamp_min clamp_max maximum minimum bitwise_and bitwise_or bitwise_not remainder fmod atan2",
    ),
    "mul": "multiply",
    **_words("addcmul addcdiv lerp"),
    **_named("copy", "where masked_fill tril triu"),
}
_TRUTHS = "eq ne lt le gt ge logical_and logical_or logical_not logical_xor isnan isinf isneginf isposinf isfinite"
_DROPOUT = {"native_dropout": "dropout", "_fused_dropout": "dropout"}
_DROPOUT_BACKWARD = {"native_dropout_backward": "dropout"}
_WITH_GRADIENT = "gelu silu leaky_relu elu tanh sigmoid hardtanh softplus hardswish hardsigmoid mish"
_ACTIVATIONS = {
    **_words(f"relu {_WITH_GRADIENT}"),
    "threshold": "relu",
    "_prelu_kernel": "leaky_relu",
    "log_sigmoid_forward": "log_sigmoid",
}
_ACTIVATIONS_BACKWARD = {
    **{f"{name}_backward": name for name in _WITH_GRADIENT.split()},
    "threshold_backward": "relu",
    "_prelu_kernel_backward": "leaky_relu",
    "log_sigmoid_backward": "log_sigmoid",
}
_LOSSES = {"mse_loss": "mse", **_words("smooth_l1_loss huber_loss binary_cross_entropy")}
_LOSSES_BACKWARD = {f"{operator}_backward": name for operator, name in _LOSSES.items()}


def _elements(
    kind: Operation, forward: Mapping[str, str], backward: Mapping[str, str] | None = None
) -> dict[str, Rule]:
    both = ((forward, False), (backward or {}, True))
    return {
        operator: partial(_elementwise, name=name, kind=kind, backward=is_backward)
        for names, is_backward in both
        for operator, name in names.items()
    }


def _normalizations(
    operators: str, name: str, *, backward: bool = False, training: int | None = None
) -> dict[str, Rule]:
    return rule_for(partial(_normalization, name=name, backward=backward, training=training), operators)


PER_ELEMENT: Mapping[Operation, Mapping[str, Rule]] = {
    Operation.NORMALIZATION: {
        **_normalizations("native_batch_norm cudnn_batch_norm miopen_batch_norm", "batch_norm", training=5),
        **_normalizations("native_batch_norm_backward batch_norm_backward", "batch_norm", training=7, backward=True),
        **_normalizations("cudnn_batch_norm_backward miopen_batch_norm_backward", "batch_norm", backward=True),
        **_normalizations("_batch_norm_with_update", "batch_norm"),
        **_normalizations("_batch_norm_no_update", "batch_norm_inference"),
        **_normalizations("native_layer_norm", "layer_norm"),
        **_normalizations("native_layer_norm_backward", "layer_norm", backward=True),
        **_normalizations("native_group_norm", "group_norm"),
        **_normalizations("native_group_norm_backward", "group_norm", backward=True),
        **_normalizations("_fused_rms_norm", "rms_norm"),
        **_normalizations("_fused_rms_norm_backward", "rms_norm", backward=True),
    },
    Operation.ACTIVATION: _elements(Operation.ACTIVATION, _ACTIVATIONS, _ACTIVATIONS_BACKWARD),
    Operation.SOFTMAX: _elements(
        Operation.SOFTMAX,
        {"_softmax": "softmax", "_log_softmax": "log_softmax"},
        {"_softmax_backward_data": "softmax", "_log_softmax_backward_data": "log_softmax"},
    ),
    Operation.POOLING: POOLING,
    Operation.LOSS: {
        **rule_for(_samples, "nll_loss_forward nll_loss2d_forward"),
        **rule_for(_samples_backward, "nll_loss_backward nll_loss2d_backward"),
        **_elements(Operation.LOSS, _LOSSES, _LOSSES_BACKWARD),
    },
    Operation.EMBEDDING: {"embedding": _embedding, "embedding_dense_backward": _embedding_backward},
    Operation.ELEMENTWISE: {
        **_elements(Operation.ELEMENTWISE, _ARITHMETIC | _DROPOUT, _DROPOUT_BACKWARD),
        **_elements(Operation.ELEMENTWISE, {f"_foreach_{operator}": name for operator, name in _ARITHMETIC.items()}),
        **rule_for(partial(_elementwise, name="add", item_bytes=1), _TRUTHS),
        **rule_for(
            partial(_filled, name="random", kind=Operation.ELEMENTWISE), "uniform normal bernoulli random exponential"
        ),
    },
    Operation.REDUCTION: {
        **rule_for(partial(_reduction, name="sum"), "sum cumsum amax amin max min all any prod"),
        "mean": partial(_reduction, name="mean"),
        "linalg_vector_norm": _vector_norm,
        "_foreach_norm": _norms,
    },
    Operation.OPTIMIZER: {
        "_fused_adam": partial(_update, name="adam"),
        "_fused_adamw": partial(_update, name="adamw"),
        "_fused_sgd": partial(_update, name="sgd", with_state="sgd_momentum"),
        "_fused_adagrad": partial(_update, name="adagrad"),
    },
    Operation.COPY: {
        **rule_for(partial(_filled, name="fill", kind=Operation.COPY), "fill zero _foreach_zero"),
        **rule_for(_copies, "clone cat _foreach_clone flip"),
        "copy": _copy,
    },
    Operation.CAST: {"_to_copy": _cast},
}
