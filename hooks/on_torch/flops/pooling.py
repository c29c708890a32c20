"""Pooling: counted from the forward pass's output elements and the elements of a window."""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from tbdprof.facts.records import Operation
from tbdprof.facts.work import Work
from tbdprof.hooks.on_torch.flops.operands import (
    Arguments,
    Rule,
    for_each,
    numbers,
    rule_for,
    tensor,
    window_places,
    work_per_element,
)


def _pooling(arguments: Arguments, *, name: str, ceil: int, dilation: int | None = None, index_bytes: int = 0) -> Work:
    """Args: input, kernel, stride (empty means the kernel), padding, …; the argument at `ceil` rounds sizes up."""
    given, kernel, stride, padding = tensor(arguments[0]), *(numbers(each) for each in arguments[1:4])
    gaps = (1,) if dilation is None else numbers(arguments[dilation])
    dimensions = len(kernel)
    steps, edges, gaps = (for_each(each, dimensions) for each in (stride or kernel, padding, gaps))
    places = window_places(given.shape[-dimensions:], kernel, steps, edges, gaps, ceil=bool(arguments[ceil]))
    elements = math.prod((*given.shape[:-dimensions], *places))
    return _pooled(arguments, name, elements, math.prod(kernel), elements * (given.item_bytes + index_bytes))


def _pooling_backward(arguments: Arguments, *, name: str) -> Work:
    """Args: gradient, input, kernel, …."""
    gradient, given, kernel = tensor(arguments[0]), tensor(arguments[1]), numbers(arguments[2])
    work = _pooled(arguments, name, gradient.elements, math.prod(kernel), given.bytes)
    return replace(work, backward=True)


def _adaptive(arguments: Arguments, *, name: str) -> Work:
    """Args: input, output sizes. The windows differ in size, so the count uses their average, rounded up."""
    given, wanted = tensor(arguments[0]), numbers(arguments[1])
    elements = math.prod((*given.shape[: -len(wanted)], *wanted))
    return _pooled(arguments, name, elements, -(-given.elements // elements), elements * given.item_bytes)


def _adaptive_backward(arguments: Arguments, *, name: str) -> Work:
    """Args: gradient, input, …."""
    gradient, given = tensor(arguments[0]), tensor(arguments[1])
    work = _pooled(arguments, name, gradient.elements, -(-given.elements // gradient.elements), given.bytes)
    return replace(work, backward=True)


def _pooled(arguments: Arguments, name: str, elements: int, window: int, written_bytes: int) -> Work:
    work = work_per_element(Operation.POOLING, name, elements, arguments, written_bytes)
    return replace(work, sizes={"elements": elements, "window": window})


POOLING: Mapping[str, Rule] = {
    **rule_for(
        partial(_pooling, name="max_pool", dilation=4, ceil=5, index_bytes=8),
        "max_pool2d_with_indices max_pool3d_with_indices",
    ),
    **rule_for(partial(_pooling, name="max_pool", dilation=4, ceil=5), "mkldnn_max_pool2d mkldnn_max_pool3d"),
    **rule_for(
        partial(_pooling_backward, name="max_pool"),
        "max_pool2d_with_indices_backward max_pool3d_with_indices_backward",
    ),
    **rule_for(partial(_pooling, name="avg_pool", ceil=4), "avg_pool2d avg_pool3d"),
    **rule_for(partial(_pooling_backward, name="avg_pool"), "avg_pool2d_backward avg_pool3d_backward"),
    **rule_for(partial(_adaptive, name="avg_pool"), "_adaptive_avg_pool2d _adaptive_avg_pool3d"),
    **rule_for(
        partial(_adaptive_backward, name="avg_pool"), "_adaptive_avg_pool2d_backward _adaptive_avg_pool3d_backward"
    ),
    **rule_for(partial(_adaptive, name="max_pool"), "adaptive_max_pool2d adaptive_max_pool3d"),
    **rule_for(
        partial(_adaptive_backward, name="max_pool"), "adaptive_max_pool2d_backward adaptive_max_pool3d_backward"
    ),
}
