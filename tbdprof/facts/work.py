"""What an operator computes, alike for all frameworks: hooks write it, `analysis.kernels.flops` counts its FLOPs.

The sizes of each operation:

    convolution  weight: elements of the weight, its channels already divided by the groups.
                 positions: places of the output to which the kernel is applied, over the batch. Of a transposed
                 convolution, places of the input.
    matmul       batch, rows, columns, inner.
    attention    batch (heads among it), queries, keys, width (of queries and keys), value_width.
    recurrent    weight: elements of all weight matrices, of all layers and directions, without biases.
                 positions: batch × time steps.
    all others   elements: of the larger of input and output. For pooling, those of the forward's output, and window:
                 the elements of its window. For nll_loss, samples. For an embedding, what is looked up. For an
                 optimizer, those of the parameters. `analysis.kernels.flops` lists the names that have a count.

Convolution, matmul and recurrent may have `bias`: the elements that a bias is added to, or backward is summed from.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from tbdprof.facts.records import Operation

GATES = {"lstm": 4, "gru": 3, "rnn_relu": 1, "rnn_tanh": 1}  # of a recurrent cell, by its mode in MXNet and cuDNN
PRODUCTS = frozenset({Operation.CONVOLUTION, Operation.MATMUL, Operation.ATTENTION, Operation.RECURRENT})


@dataclass(frozen=True, slots=True)
class Work:
    """The sizes of a computation.

    `name` distinguishes operations of one kind that have different FLOP counts ("batch_norm", "relu", "adam").
    `products` is how many matmuls or convolutions of these sizes there are. A convolution's backward pass has one for
    each gradient it computes, and 0 if it computes only a bias's. `moved_bytes` counts every operand and every result
    once (None: not reported). `precision` is that of the arithmetic.
    """

    operation: Operation
    sizes: Mapping[str, int] = field(default_factory=dict)
    name: str = ""
    backward: bool = False
    products: int = 1
    moved_bytes: int | None = None
    precision: str = "fp32"


def text(work: Work) -> str:
    """Return a computation as text; the same computation is always the same text."""
    fields = {
        "operation": work.operation.name.lower(),
        "sizes": dict(work.sizes),
        "name": work.name,
        "backward": work.backward,
        "products": work.products,
        "moved_bytes": work.moved_bytes,
        "precision": work.precision,
    }
    return json.dumps(fields, sort_keys=True, separators=(",", ":"))


@lru_cache(maxsize=1 << 16)
def parse(written: str) -> Work:
    """Return the computation that a text stands for."""
    fields = json.loads(written)
    return Work(**{**fields, "operation": Operation[fields["operation"].upper()]})


def precisions_of_products(written: Iterable[str]) -> set[str]:
    """Return the precisions of the products among some computations."""
    works = (parse(each) for each in written if each)
    return {work.precision for work in works if work.operation in PRODUCTS}
