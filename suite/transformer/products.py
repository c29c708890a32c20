"""What one training step computes and keeps: sums over the layers, for the batches it is trained on.

Every product of a forward pass has two of the same size backward: all layers are trained, and what each is given has a
gradient, for the first are given the embedding's rows. That is the same in every framework, whether it computes the
attention in one operator (torch) or writes its products out (MXNet, TensorFlow): none makes more or fewer.
"""

from tbdprof.suite.transformer.architecture import HEADS, Shape, Sizes, layers, macs, sizes_of
from tbdprof.suite.transformer.sentences import shapes
from tbdprof.suite.workload import Config

_PRODUCTS = 3  # the output, and the gradients of both factors


def step_flops(sizes: Sizes, batch: Shape) -> int:
    """Return the FLOPs of a training step on a batch."""
    return 2 * _PRODUCTS * macs(layers(sizes), batch)


def flops_per_sentence(config: Config) -> float:
    """Return the FLOPs of a training step for each sentence, over a period of the synthetic batches."""
    sizes, period = sizes_of(config.options), shapes(config)
    return sum(step_flops(sizes, batch) for batch in period) / sum(batch.sentences for batch in period)


def kept_bytes(sizes: Sizes, batch: Shape) -> int:
    """Return how many bytes torch keeps of a batch for the backward pass in fp32, but for a few numbers.

    Of each place, in widths: what an attention is given, its queries, keys, values and output (4, or 2 on the side that
    asks and 2 on the other), and of each residual connection what dropout let through, the sum and its normalization
    (3). Besides, the dense layers keep the inner width once, an attention a number for each head and its mask, and a
    normalization 2. The loss keeps the logarithms of all words' shares. Words are numbers of 8 bytes.
    """
    width, heads, blocks = sizes.width, HEADS, sizes.layers
    source = 2 * width + blocks * (10 * width + sizes.inner + heads + 4 + 1) + blocks * (2 * width + 1)
    target = 2 * width + blocks * (15 * width + sizes.inner + 2 * heads + 6) + sizes.vocabulary
    words = 8 * batch.source + (8 + 8 + 1) * batch.target
    return batch.sentences * (4 * (batch.source * source + batch.target * target) + words)
