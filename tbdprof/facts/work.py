"""What an operator computes, in one vocabulary for all frameworks: hooks write it, `analysis.flops` counts it.

The sizes an operation has:

    convolution  weight: elements of the weight (its channels already divided by the groups); positions: places at which
                 the kernel is laid, over the batch (of the output; of a transposed convolution, of the input)
    matmul       batch, rows, columns, inner
    attention    batch (heads among it), queries, keys, width (of queries and keys), value_width
    recurrent    weight: elements of all weight matrices, of all layers and directions, without biases;
                 positions: batch × time steps
    all others   elements: of the larger of input and output; of the forward's output for pooling, which has window too,
                 the elements of its window; samples for nll_loss; what is looked up for embedding; the parameters' for
                 an optimizer. `analysis.flops` lists the names that have a count

Convolution, matmul and recurrent may have `bias`: the elements a bias is added to, or backward summed from.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from tbdprof.facts.records import Operation


@dataclass(frozen=True, slots=True)
class Work:
    """The sizes of a computation.

    `name` tells operations of one kind apart that count differently ("batch_norm", "relu", "adam"). `products` is how
    many products of these sizes there are: a convolution's backward pass has one for each gradient it computes, 0 where
    only a bias's. `moved_bytes` has every operand read once and every result written once (None: not told). `precision`
    is that of the arithmetic.
    """

    operation: Operation
    sizes: Mapping[str, int] = field(default_factory=dict)
    name: str = ""
    backward: bool = False
    products: int = 1
    moved_bytes: int | None = None
    precision: str = "fp32"


def text(work: Work) -> str:
    """Return a work as text; the same work is always the same text."""
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
def parse(told: str) -> Work:
    """Return the work a text stands for."""
    fields = json.loads(told)
    return Work(**{**fields, "operation": Operation[fields["operation"].upper()]})
