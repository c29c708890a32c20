"""The Transformer's initial weights and its position vectors, made in numpy: the same in every framework.

The embedding is normally distributed with variance 1 / width. A dense layer's weight is uniform with variance 2 /
(inputs + outputs), as in the authors' code (Glorot's rule). Biases begin with 0, normalizations with scale 1 and shift
0.
"""

from math import sqrt

import numpy as np
from numpy.typing import NDArray

from tbdprof.suite.initial import Weights, normal, uniform
from tbdprof.suite.transformer.architecture import Dense, Embedding, Sizes, layers

_WEIGHTS = 0  # joined to the seed, so that batches and initial weights draw different random numbers
_LONGEST_WAVE = 10_000  # of the positions, over 2π


def weights(seed: int, sizes: Sizes | None = None) -> Weights:
    """Yield each randomly drawn weight by name (`encoder.0.inner.weight`), one at a time."""
    random = np.random.default_rng((seed, _WEIGHTS))
    for layer in layers(sizes):
        if isinstance(layer, Embedding):
            yield f"{layer.name}.weight", normal(random, layer.shape, 1 / sqrt(layer.width))
        elif isinstance(layer, Dense):
            bound = sqrt(6 / (layer.inputs + layer.outputs))
            yield f"{layer.name}.weight", uniform(random, layer.shape, bound)


def positions(places: int, width: int) -> NDArray[np.float64]:
    """Return the position vectors, (places, width): sines in even columns, cosines in odd ones (section 3.5)."""
    rates = _LONGEST_WAVE ** (-np.arange(0, width, 2) / width)
    angles = np.arange(places)[:, None] * rates
    table: NDArray[np.float64] = np.stack([np.sin(angles), np.cos(angles)], 2).reshape(places, width)
    return table
