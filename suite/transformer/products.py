"""What one training step computes and keeps: sums over the layers, for the batches it is trained on.

Every matmul of a forward pass has two of the same size in the backward pass. The reason is that all layers are trained,
and the input of every layer has a gradient: the first layers take the embedding's rows. The number of matmuls is the
same in every framework, whether it computes attention in one operator (torch) or in several (MXNet, TensorFlow).
"""

from tbdprof.suite.transformer.architecture import HEADS, Shape, Sizes, layers, macs, sizes_of
from tbdprof.suite.transformer.sentences import shapes
from tbdprof.suite.workload import Config

_PRODUCTS = 3  # the output, and the gradients of both factors


def step_flops(sizes: Sizes, batch: Shape) -> int:
    """Return the FLOPs of a training step on a batch."""
    return 2 * _PRODUCTS * macs(layers(sizes), batch)


def flops_per_sentence(config: Config) -> float:
    """Return the FLOPs of a training step per sentence, averaged over a period of synthetic batches."""
    sizes, period = sizes_of(config.options), shapes(config)
    return sum(step_flops(sizes, batch) for batch in period) / sum(batch.sentences for batch in period)


def kept_bytes(sizes: Sizes, batch: Shape) -> int:
    """Return how many bytes torch keeps of a batch for the backward pass in fp32, except for a few numbers.

    For each position, as multiples of the width, torch keeps:

    - of an attention: its queries, keys, values and output (4, or 2 on the queries' side and 2 on the other);
    - of each residual connection: the output of dropout, the sum and its normalization (3).

    Besides, the dense layers keep the inner width once. An attention keeps a number for each head, and its mask; a
    normalization keeps 2 numbers. The loss keeps the log-probabilities of all words. Word numbers have 8 bytes.
    """
    width, heads, blocks = sizes.width, HEADS, sizes.layers
    source = 2 * width + blocks * (10 * width + sizes.inner + heads + 4 + 1) + blocks * (2 * width + 1)
    target = 2 * width + blocks * (15 * width + sizes.inner + 2 * heads + 6) + sizes.vocabulary
    words = 8 * batch.source + (8 + 8 + 1) * batch.target
    return batch.sentences * (4 * (batch.source * source + batch.target * target) + words)
