"""What one training step computes: how often each layer's matmul is done, and the FLOPs of all.

A layer's matmul has the same number of multiply-accumulates for its output, for its input's gradient and for its
weight's gradient. It is done at every position of its side of a batch, padding included. Attention has two matmuls for
each pair of a target's and a source's position, and each of them has two gradients. Lookups and the gates' own
arithmetic have no matmuls.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from tbdprof.suite.data.inputs import SentencePairs
from tbdprof.suite.data.text.buckets import Sentences
from tbdprof.suite.data.text.corpora import IWSLT15
from tbdprof.suite.data.text.translation import synthetic
from tbdprof.suite.seq2seq.architecture import Lstm, attention_macs, layers, macs
from tbdprof.suite.workload import PERIOD, Config


def _both_directions(batch: SentencePairs) -> int:
    """Return how many initial states need no gradient: each sentence has one in each direction."""
    return 2 * len(batch.source)


def _longest_backwards(batch: SentencePairs) -> int:
    """Return how many initial states need no gradient in packed sequences.

    They are the forward ones of all sentences, and the backward ones of the longest. Backward, only the longest
    sentences begin at the first step; the zeros of the others join states that have a gradient. If all sentences have
    the same length, torch hands them to oneDNN in float32, which computes the gradients of all states.
    """
    longest = int(np.sum(batch.source_lengths == batch.source_lengths.max()))
    return 0 if longest == len(batch.source) else len(batch.source) + longest


@dataclass(frozen=True, slots=True)
class Encoding:
    """What a framework computes in the encoder."""

    padding: bool = True  # whether its cells are computed at padding, too
    without_gradient: Callable[[SentencePairs], int] = lambda _: 0  # states that no gradient is made of, of one LSTM
    columns: int = 0  # more of the inputs' weights


# By framework and `--rnn`.
ENCODINGS: Mapping[str, Mapping[str, Encoding]] = {
    # Packed sequences have no padding. (On a GPU cuDNN's operator makes the gradients of all states.)
    "torch": {"fused": Encoding(False, _longest_backwards), "cell": Encoding(without_gradient=_both_directions)},
    # Its operator makes the gradients of all states, and has a column by which it shuts the gates at padding.
    "mxnet": {"fused": Encoding(columns=1), "cell": Encoding(without_gradient=_both_directions)},
    # Its loops make the same gradients at every step, the first one's too.
    "tensorflow": {"fused": Encoding(), "cell": Encoding()},
}


def sample_flops(config: Config, framework: str) -> float:
    """Return the FLOPs of a training step for each sentence pair, averaged over a period of synthetic batches."""
    drawn = synthetic(IWSLT15, Sentences(config.batch_size), config.seed, PERIOD)
    width, encoding = int(config.options["width"]), ENCODINGS[framework][str(config.options["rnn"])]
    return sum(step_flops(batch, width, encoding) for batch in drawn) / (PERIOD * config.batch_size)


def step_flops(batch: SentencePairs, width: int, encoding: Encoding) -> int:
    """Return the FLOPs of a training step on a batch."""
    sentences, source = batch.source.shape
    target = batch.target.shape[1]
    recurrent = [layer for layer in layers(width) if isinstance(layer, Lstm) and layer.side == "source"]
    others = [layer for layer in layers(width) if layer not in recurrent]
    encoded = sentences * source if encoding.padding else int(batch.source_lengths.sum())
    at_position = macs(recurrent, "source") + sum(4 * layer.width * encoding.columns for layer in recurrent)
    made = 3 * encoded * at_position - encoding.without_gradient(batch) * 4 * width * width
    made += 3 * sentences * (source * macs(others, "source") + target * macs(others, "target"))
    made += 3 * sentences * source * target * attention_macs(width)
    return 2 * made
