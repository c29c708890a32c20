"""The FLOP count of a `tbdprof.facts.work.Work`: every formula once, for all frameworks. FLOP = 2 × MAC.

The counts of matmuls and convolutions are exact. Every other operator has a documented count per element. Each
arithmetic operation, comparison and function value (exp, tanh, square root, …) counts 1. An operation done once per
row, channel or tensor counts 0.

These names have a count; parentheses say what `elements` are if they are not the larger of input and output:

    normalization  batch_norm, batch_norm_inference, layer_norm, group_norm, rms_norm.
    activation     relu, leaky_relu, elu, gelu, silu, tanh, sigmoid, hardtanh, hardsigmoid, hardswish, softplus,
                   log_sigmoid, mish.
    softmax        softmax, log_softmax.
    loss           cross_entropy (logits), nll_loss (samples), mse, smooth_l1_loss, huber_loss, binary_cross_entropy.
    pooling        max_pool, avg_pool (elements of the forward's output; window: elements of its window).
    element-wise   add (any arithmetic of one operation per element), multiply, scale, addcmul, addcdiv, lerp, dropout.
    reduction      sum, mean, norm (elements read).
    embedding      embedding (elements looked up).
    optimizer      sgd, sgd_momentum, adagrad, adam, adamw, rmsprop (elements of the parameters).
    copy           copy, fill; every operator of the kind COPY or CAST, whatever its name.

`backward` means that the operator *is* the gradient of the named one. It does not mean that it runs in the backward
pass: an addition there is a forward `add`. The count of a recurrent operator covers its matmuls and
biases alone. The cell's own arithmetic (19 operations per unit of an LSTM) is below 1 % of them from 128 units on.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tbdprof.facts.records import Operation
from tbdprof.facts.work import Work

Sizes = Mapping[str, int]

# FLOPs per element: of the forward operator, of its gradient.
_PER_ELEMENT: Mapping[str, tuple[int, int]] = {
    # Forward: mean 1 (add); variance 3 (subtract, square, add); scale and shift 2 (folded into one pair per channel).
    # Backward: sum of dy 1; sum of dy·(x − mean) 3; dx = (dy − mean(dy) − (x − mean)·k)·a 5.
    "batch_norm": (6, 9),
    # Forward: scale and shift 2. Backward: dy·a 1; sum of dy 1; sum of dy·(x − mean) 3.
    "batch_norm_inference": (2, 5),
    # Forward: mean 1; variance 3; (x − mean)·r·γ + β 4, because γ differs along a row.
    # Backward: x̂ 2; dγ 2; dβ 1; dy·γ 1; its sum 1; sum of its product with x̂ 2; dx = r·(dy·γ − m1 − x̂·m2) 4.
    "layer_norm": (8, 13),
    # Forward: as batch_norm, folded per sample and channel. Backward: sums of dy and dy·x 3; dx = a·dy + b·x + c 4.
    "group_norm": (6, 7),
    # Forward: square, add, x·r·γ. Backward: x̂ 1; dγ 2; dy·γ 1; sum of its product with x̂ 2; r·(dy·γ − x̂·m) 3.
    "rms_norm": (4, 9),
    "relu": (1, 1),  # compare; multiply by 0 or 1
    "leaky_relu": (2, 2),  # compare, multiply; the same
    "elu": (4, 3),  # compare, exp, − 1, ·α; compare, y + α, ·dy
    # Forward: x·½·(1 + erf(x/√2)) 5. Backward: Φ 4; φ 4 (square, ·−½, exp, /√2π); (Φ + x·φ)·dy 3.
    "gelu": (5, 11),
    "silu": (4, 8),  # sigmoid 3, ·x; sigmoid 3, dy·s·(1 + x·(1 − s)) 5
    "tanh": (1, 3),  # tanh; dy·(1 − y²)
    "sigmoid": (3, 3),  # 1/(1 + exp −x); dy·y·(1 − y)
    "hardtanh": (2, 3),  # two comparisons; the same, multiply
    "hardsigmoid": (4, 3),  # x + 3, two comparisons, /6; two comparisons, multiply
    "hardswish": (5, 5),  # as hardsigmoid, ·x; two comparisons, (x/3 + ½)·dy
    "softplus": (3, 4),  # log(1 + exp x); a sigmoid, ·dy
    "log_sigmoid": (3, 4),
    "mish": (5, 13),  # x·tanh(softplus x); softplus, its tanh and sigmoid 7, (t + x·s·(1 − t²))·dy 6
    "softmax": (5, 4),  # maximum, subtract, exp, sum, divide; dy·y, its sum, subtract, ·y
    "log_softmax": (5, 4),  # maximum, subtract, exp, sum, subtract; sum of dy, exp y, multiply, subtract
    "cross_entropy": (5, 2),  # as log_softmax; softmax − target, ·scale
    "nll_loss": (2, 1),  # negate or weigh, add; ·scale
    "mse": (3, 2),  # subtract, square, add; subtract, ·scale
    "smooth_l1_loss": (6, 4),  # subtract, absolute value, compare, square, scale, add; subtract, compare, scale, ·dy
    "huber_loss": (6, 4),
    "binary_cross_entropy": (8, 5),  # two logarithms, 1 − x, 1 − t, two multiplies, two adds; (x − t)/(x·(1 − x))·dy
    "max_pool": (0, 1),  # backward: one add into the largest element's gradient
    "avg_pool": (0, 0),
    "add": (1, 0),  # the gradient passes on as it is
    "multiply": (1, 2),  # dy·b and dy·a
    "scale": (1, 1),
    "addcmul": (3, 0),  # x + c·a·b
    "addcdiv": (3, 0),  # x + c·a/b
    "lerp": (3, 0),  # x + c·(y − x)
    "dropout": (2, 1),  # compare with the chance, multiply; multiply. Random numbers are not counted
    "sum": (1, 0),
    "mean": (1, 0),
    "norm": (2, 0),  # square, add
    "embedding": (0, 1),  # a lookup; backward an add into the row
    # Without weight decay (except adamw), clipping and rescaling: the sizes do not show them.
    "sgd": (2, 0),  # p − lr·g
    "sgd_momentum": (4, 0),  # m = μ·m + g; p − lr·m
    "adagrad": (7, 0),  # s + g·g 2; √s + ε 2; p − lr·g/that 3
    "adam": (13, 0),  # m 3; v 4; √v/c + ε 3; p − step·m/that 3
    "adamw": (14, 0),  # adam, and p·(1 − lr·decay)
    "rmsprop": (9, 0),  # v 4; √v + ε 2; p − lr·g/that 3
    "copy": (0, 0),
    "fill": (0, 0),
}
# FLOPs per element of the output and of its window.
_PER_WINDOW_ELEMENT: Mapping[str, tuple[int, int]] = {
    "max_pool": (1, 0),  # compare
    "avg_pool": (1, 1),  # add (the last one stands for the division); the same backward
}
# FLOPs per score (a pair of query and key). Forward: scale and softmax. Backward: scale, softmax again from its kept
# sums (3), its gradient.
_PER_SCORE = (6, 8)


@dataclass(frozen=True, slots=True)
class Flops:
    """The FLOPs of a `Work`: matmuls and convolutions of the model, those computed again, and all other arithmetic."""

    model: int
    recomputed: int = 0
    elementwise: int = 0

    @property
    def total(self) -> int:
        """Return all FLOPs that the device computes."""
        return self.model + self.recomputed + self.elementwise


def count(work: Work) -> Flops | None:
    """Return the FLOPs of a `Work`, or None if its name has no count or a needed size is unknown."""
    try:
        return _PRODUCTS.get(work.operation, _elementwise)(work)
    except KeyError:
        return None


def _kernel_positions(work: Work) -> Flops:
    """Count one multiply-add per weight and position."""
    sizes = work.sizes
    return Flops(2 * sizes["weight"] * sizes["positions"] * work.products, elementwise=sizes.get("bias", 0))


def _matmul(work: Work) -> Flops:
    sizes = work.sizes
    product = 2 * sizes["batch"] * sizes["rows"] * sizes["columns"] * sizes["inner"]
    return Flops(product * work.products, elementwise=sizes.get("bias", 0))


def _attention(work: Work) -> Flops:
    """Count two matmuls forward; backward, their four gradients and the scores' matmul again.

    A mask does not lower the count: the masked half of a causal mask counts too.
    """
    sizes = work.sizes
    scores = sizes["batch"] * sizes["queries"] * sizes["keys"]
    forward = 2 * scores * (sizes["width"] + sizes["value_width"])
    elementwise = _PER_SCORE[work.backward] * scores
    if not work.backward:
        return Flops(forward, elementwise=elementwise)
    return Flops(2 * forward, 2 * scores * sizes["width"], elementwise)


def _nothing(_work: Work) -> Flops:
    return Flops(0)


def _elementwise(work: Work) -> Flops:
    each = _PER_ELEMENT[work.name][work.backward]
    window = _PER_WINDOW_ELEMENT.get(work.name)
    if window is not None:
        each += window[work.backward] * work.sizes["window"]
    return Flops(0, elementwise=each * work.sizes["elements"])


_PRODUCTS: Mapping[Operation, Callable[[Work], Flops]] = {
    Operation.CONVOLUTION: _kernel_positions,
    Operation.RECURRENT: _kernel_positions,
    Operation.MATMUL: _matmul,
    Operation.ATTENTION: _attention,
    Operation.COPY: _nothing,
    Operation.CAST: _nothing,
}
