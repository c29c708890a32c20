"""The Transformer's facts, after Vaswani et al., Attention Is All You Need, 2017 (arXiv:1706.03762): its base model.

The base model has 6 layers on each side, width 512, inner width 2048 and 8 heads. Normalization follows each residual
connection, positions are coded by sines, and one embedding serves the source, the target and the scores. Three choices
are those of the authors' published code. The embedding's rows are drawn with a variance of 1 / width. They are
multiplied by the square root of the width when they are looked up. The normalizations' epsilon is 1e-6. Dropout is
where the paper has it: on the output of each sub-layer and on the sums of embeddings and positions, and not within the
attention. The projections of the attention have biases, the scores have none. `tbdprof.suite.transformer.architecture`
holds the layers; the figures here are sums over them.

The batch size is not a number of sentences but a budget, as in the authors' code: each side of a batch has at most 32 ×
batch size tokens. Sentences of similar length share a batch, so a batch holds many short ones or few long ones.
Throughput counts the tokens of both sides, including each target's end, without padding.

The embedding is used three times, and its gradient is the sum of three gradients. Each of them is as large as the whole
embedding, also those of the lookups: 75,776,000 bytes at its full size in fp32. Before they are added up they count as
gradients of activations. torch and TensorFlow hold two of them at once, MXNet three.

The learning rate rises over the first 4,000 steps and then falls with the square root of the steps. So it still rises
in a short run: after 100 steps the rate is 1.7e-5, and its maximum is 7.0e-4. This does not change what a step
computes. `--rise` shortens the rise. `--width`, `--layers` and `--vocabulary` make the network smaller, for trials
where the paper's network would take too long. A narrower network also has 8 heads, and its inner width is 4 times its
width.
"""

from math import sqrt

from tbdprof.suite.transformer.architecture import LAYERS, VOCABULARY, WIDTH, Shape, sizes_of
from tbdprof.suite.workload import PERIOD, Config, Option, Options, Spec

DROPOUT = 0.1
SMOOTHING = 0.1  # of the labels: the share of a target that is spread over all words evenly
WARMUP = 4000
BETAS = (0.9, 0.98)
ADAM_EPSILON = 1e-9


def learning_rate(step: int, width: int, warmup: int) -> float:
    """Return the learning rate of a step, counted from 1: equation 3 of the paper."""
    return min(1 / sqrt(step), step / (warmup * sqrt(warmup))) / sqrt(width)


def dropout(options: Options) -> float:
    """Return the share of values that dropout sets to 0."""
    return DROPOUT if options["dropout"] == "on" else 0.0


def sample_bytes(options: Options) -> int:
    """Return what torch keeps for the backward pass of a sentence of 32 tokens per side; the peak is slightly higher.

    No batch has more than its budget of tokens, and most batches have slightly fewer.
    """
    from tbdprof.suite.transformer.products import kept_bytes  # which brings numpy, as does `sentences`
    from tbdprof.suite.transformer.sentences import TOKENS

    return kept_bytes(sizes_of(options), Shape(1, TOKENS, TOKENS))


def sample_flops(config: Config, _framework: str) -> float:
    """Return the FLOPs of a training step per sentence, averaged over a period of synthetic batches."""
    from tbdprof.suite.transformer.products import flops_per_sentence  # which brings numpy

    return flops_per_sentence(config)


SPEC = Spec(
    name="transformer",
    title="Transformer",
    task="machine translation",
    dataset="WMT-14",
    unit="tokens",
    sample_unit="sentences",
    layers="12",
    dominant_layer="attention",
    parameters=63_082_496,
    default_batch={"cpu": 4, "cuda": 128},
    optimizer="Adam, betas 0.9 and 0.98; learning rate rising for 4,000 steps, then falling with their root",
    options=(
        Option("dropout", "on", "whether a tenth of the values is dropped that a sub-layer puts out", ("on", "off")),
        Option("rise", WARMUP, "steps over which the learning rate rises"),
        Option("width", WIDTH, "of the embedding and of every layer; 4 times as much between a block's dense layers"),
        Option("layers", LAYERS, "of the encoder, and as many of the decoder"),
        Option("vocabulary", VOCABULARY, "words that the embedding knows, the marks among them"),
    ),
    fixed_bytes=4 * 4 * 63_082_496,  # weights, their gradients, Adam's two moments
    sample_bytes=sample_bytes,
    sample_flops=sample_flops,
    period=PERIOD,
    switches={
        "torch": ("compile", "fused_optimizer", "checkpointing"),
        "mxnet": ("hybridize",),
        "tensorflow": ("eager", "jit"),
    },
)
