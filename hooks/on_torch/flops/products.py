"""Convolutions, matmuls, attention and recurrent layers: exact FLOP counts."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from tbdprof.facts.records import Operation
from tbdprof.facts.work import Work
from tbdprof.hooks.on_torch.flops.operands import (
    Arguments,
    Operand,
    Rule,
    for_each,
    number,
    numbers,
    precision,
    tensor,
    tensors,
    total_bytes,
    transposed_sizes,
    window_places,
)


@dataclass(frozen=True, slots=True)
class _At:
    """The positions of a convolution's settings among its arguments, after input and weight."""

    stride: int
    padding: int
    dilation: int
    groups: int
    bias: int | None = 2
    transposed: int | bool = False  # a position, or a bool that is the value itself
    output_padding: int | None = None


def _convolution(arguments: Arguments, *, at: _At) -> Work:
    """Apply the weight at every position of the output, or of the input for a transposed convolution."""
    given, weight = tensor(arguments[0]), tensor(arguments[1])
    spatial, kernel = given.shape[2:], weight.shape[2:]
    stride, padding, dilation = (
        for_each(numbers(arguments[place]), len(kernel)) for place in (at.stride, at.padding, at.dilation)
    )
    if at.transposed is True or (at.transposed and arguments[at.transposed]):
        extra = (0,) if at.output_padding is None else numbers(arguments[at.output_padding])
        made = transposed_sizes(spatial, kernel, stride, padding, dilation, for_each(extra, len(kernel)))
        channels, places = weight.shape[1] * number(arguments[at.groups]), spatial
    else:
        made = places = window_places(spatial, kernel, stride, padding, dilation)
        channels = weight.shape[0]
    output = given.shape[0] * channels * math.prod(made)
    has_bias = at.bias is not None and isinstance(arguments[at.bias], Operand)
    return Work(
        Operation.CONVOLUTION,
        {"weight": weight.elements, "positions": given.shape[0] * math.prod(places)} | _bias(output * has_bias),
        moved_bytes=total_bytes(arguments) + output * given.item_bytes,
        precision=precision(arguments),
    )


def _convolution_backward(arguments: Arguments) -> Work:
    """Args: gradient, input, weight, …, transposed (7), …, and last which gradients are needed."""
    gradient, given, weight = (tensor(each) for each in arguments[:3])
    to_input, to_weight, to_bias = (bool(each) for each in numbers(arguments[10]))
    laid = given if arguments[7] else gradient
    bias_bytes = to_bias * gradient.shape[1] * gradient.item_bytes
    return Work(
        Operation.CONVOLUTION,
        {"weight": weight.elements, "positions": laid.shape[0] * math.prod(laid.shape[2:])}
        | _bias(gradient.elements * to_bias),
        backward=True,
        products=to_input + to_weight,
        # The gradient of the input reads the weight, and the gradient of the weight reads the input.
        moved_bytes=gradient.bytes + (to_input + to_weight) * (given.bytes + weight.bytes) + bias_bytes,
        precision=precision(arguments),
    )


def _matmul(arguments: Arguments, *, left: int = 0, bias: int | None = None) -> Work:
    """Args: two factors from `left` on (matrices, batches of matrices, or vectors) and, at `bias`, what is added."""
    one, other = tensor(arguments[left]), tensor(arguments[left + 1])
    batch = math.prod(one.shape[:-2])
    rows = one.shape[-2] if len(one.shape) > 1 else 1
    columns = other.shape[-1] if len(other.shape) > 1 else 1
    added = batch * rows * columns if bias is not None and isinstance(arguments[bias], Operand) else 0
    return _product(arguments, (batch, rows, columns, one.shape[-1]), added)


def _grouped_matmul(arguments: Arguments) -> Work:
    """Args: two factors; where one of them has three dimensions, the groups divide a dimension of the other one.

    Where both have two, the groups divide the inner dimension. All rows count, those that no group takes too.
    """
    one, other = tensor(arguments[0]), tensor(arguments[1])
    batch = one.shape[0] if len(one.shape) == len(other.shape) == 3 else 1
    return _product(arguments, (batch, one.shape[-2], other.shape[-1], one.shape[-1]), 0)


def _outer(arguments: Arguments, *, left: int = 0, bias: int | None = None) -> Work:
    """Args: two vectors."""
    rows, columns = tensor(arguments[left]).elements, tensor(arguments[left + 1]).elements
    return _product(arguments, (1, rows, columns, 1), 0 if bias is None else rows * columns)


def _dense(arguments: Arguments) -> Work:
    """Args: input (…, inner), weight (columns, inner), bias."""
    given, weight = tensor(arguments[0]), tensor(arguments[1])
    rows = math.prod(given.shape[:-1])
    added = rows * weight.shape[0] if isinstance(arguments[2], Operand) else 0
    return _product(arguments, (1, rows, *weight.shape), added)


def _product(arguments: Arguments, sizes: tuple[int, ...], added: int) -> Work:
    batch, rows, columns, inner = sizes
    item_bytes = next(tensors(arguments)).item_bytes
    return Work(
        Operation.MATMUL,
        {"batch": batch, "rows": rows, "columns": columns, "inner": inner} | _bias(added),
        moved_bytes=total_bytes(arguments) + batch * rows * columns * item_bytes,
        precision=precision(arguments),
    )


def _attention(arguments: Arguments, *, backward: bool = False) -> Work:
    """Args: queries, keys, values (batch, heads, length, width); `backward` puts the output's gradient first."""
    queries, keys, values = (tensor(each) for each in arguments[backward : backward + 3])
    batch, heads, length, width = queries.shape
    value_width = values.shape[-1]
    written = (
        queries.bytes + keys.bytes + values.bytes
        if backward
        else batch * heads * length * value_width * queries.item_bytes
    )
    return Work(
        Operation.ATTENTION,
        {
            "batch": batch * heads,
            "queries": length,
            "keys": keys.shape[-2],
            "width": width,
            "value_width": value_width,
        },
        backward=backward,
        moved_bytes=total_bytes(arguments) + written,
        precision=precision(arguments),
    )


def _recurrent_layer(arguments: Arguments, *, backward: bool = False) -> Work:
    """Args: input (time, batch, width), the weights of input and state, their biases, the states, …."""
    biased = len(tensor(arguments[3]).shape) == 1 and tensor(arguments[3]).elements > 0
    return _recurrent(arguments, arguments[1:3], sum(tensor(arguments[3]).shape) if biased else 0, backward)


def _recurrent_layers(arguments: Arguments, *, backward: bool = False) -> Work:
    """Args: input (time, batch, width) or packed (positions, width), then a list of all weights and biases, …."""
    weights = list(tensors(arguments[1:2]))
    # Each cell has two biases, one for its input and one for its state; they are added as one.
    biases = sum(each.elements for each in weights if len(each.shape) == 1) // 2
    return _recurrent(arguments, tuple(each for each in weights if len(each.shape) > 1), biases, backward)


def _recurrent(arguments: Arguments, matrices: Arguments, biases: int, backward: bool) -> Work:
    given = tensor(arguments[0])
    positions = math.prod(given.shape[:-1])
    weight = sum(each.elements for each in tensors(matrices))
    return Work(
        Operation.RECURRENT,
        {"weight": weight, "positions": positions} | _bias(positions * biases),
        backward=backward,
        products=1 + backward,  # one for the gradient of input and states, one for that of the weights
        precision=precision(arguments),
    )


def _bias(elements: int) -> dict[str, int]:
    return {"bias": elements} if elements else {}


_CONVOLUTION = _At(stride=3, padding=4, dilation=5, groups=8, transposed=6, output_padding=7)
_FUSED_ATTENTION = (
    "flash_attention",
    "flash_attention_for_cpu",
    "efficient_attention",
    "cudnn_attention",
    "fused_attention_overrideable",
)

PRODUCTS: Mapping[Operation, Mapping[str, Rule]] = {
    Operation.CONVOLUTION: {
        "convolution": partial(_convolution, at=_CONVOLUTION),
        "_convolution": partial(_convolution, at=_CONVOLUTION),
        "convolution_overrideable": partial(_convolution, at=_CONVOLUTION),
        "mkldnn_convolution": partial(_convolution, at=_At(stride=4, padding=3, dilation=5, groups=6)),
        "miopen_convolution": partial(_convolution, at=_At(stride=4, padding=3, dilation=5, groups=6)),
        "cudnn_convolution": partial(_convolution, at=_At(stride=3, padding=2, dilation=4, groups=5, bias=None)),
        "cudnn_convolution_relu": partial(_convolution, at=_At(stride=3, padding=4, dilation=5, groups=6)),
        "cudnn_convolution_transpose": partial(
            _convolution,
            at=_At(stride=4, padding=2, dilation=5, groups=6, bias=None, transposed=True, output_padding=3),
        ),
        "convolution_backward": _convolution_backward,
        "convolution_backward_overrideable": _convolution_backward,
    },
    Operation.MATMUL: {
        "mm": _matmul,
        "bmm": _matmul,
        "mv": _matmul,
        "dot": _matmul,
        "vdot": _matmul,
        "_int_mm": _matmul,
        "_scaled_mm": _matmul,
        **dict.fromkeys(("_grouped_mm", "_scaled_grouped_mm"), _grouped_matmul),
        **{each: partial(_matmul, left=1, bias=0) for each in ("addmm", "baddbmm", "addmv", "_addmm_activation")},
        "addr": partial(_outer, left=1, bias=0),
        "mkldnn_linear": _dense,
    },
    Operation.ATTENTION: {
        f"_scaled_dot_product_{variant}{direction}": partial(_attention, backward=bool(direction))
        for variant in _FUSED_ATTENTION
        for direction in ("", "_backward")
    },
    Operation.RECURRENT: {
        "mkldnn_rnn_layer": _recurrent_layer,
        "mkldnn_rnn_layer_backward": partial(_recurrent_layer, backward=True),
        "_cudnn_rnn": _recurrent_layers,
        "_cudnn_rnn_backward": partial(_recurrent_layers, backward=True),
        "miopen_rnn": _recurrent_layers,
        "miopen_rnn_backward": partial(_recurrent_layers, backward=True),
    },
}
