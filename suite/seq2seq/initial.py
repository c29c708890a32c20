"""Seq2Seq's initial weights, drawn in numpy from a seed: the same in every framework.

Weights are uniform between ±0.1, embeddings too, as in TensorFlow NMT. Biases begin at 0, those of the forget gates at
1, and the scale of the attention's scores at 1.
"""

import numpy as np

from tbdprof.suite.initial import Floats, Weights, uniform
from tbdprof.suite.seq2seq import FORGET_BIAS, UNIFORM
from tbdprof.suite.seq2seq.architecture import GATES, WIDTH, Lstm, layers

_WEIGHTS = 0  # joined to the seed, so that each purpose draws its own random numbers


def weights(seed: int, width: int = WIDTH) -> Weights:
    """Yield each weight and bias by name (`encoder.forward.input`), one at a time; the rows of a gate stay together."""
    random = np.random.default_rng((seed, _WEIGHTS))
    for layer in layers(width):
        for name, shape in layer.weights.items():
            yield f"{layer.name}.{name}", uniform(random, shape, UNIFORM)
        if isinstance(layer, Lstm):
            yield f"{layer.name}.bias", forget_bias(width)


def forget_bias(width: int) -> Floats:
    """Return the initial biases of a cell of this width: 1 for the forget gate, else 0."""
    bias = np.zeros((4, width), np.float32)
    bias[GATES.index("forget")] = FORGET_BIAS
    return bias.reshape(-1)
