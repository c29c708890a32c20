"""An image classifier's initial weights, drawn in numpy from a seed: the same in every framework."""

from collections.abc import Iterable
from math import prod, sqrt

import numpy as np

from tbdprof.suite.initial import Weights, normal
from tbdprof.suite.layers import Convolution, Dense

_WEIGHTS = 0  # joined to the seed, so that batches and initial weights draw different random numbers


def weights(layers: Iterable[Convolution | Dense], seed: int) -> Weights:
    """Yield each layer's weight by name (`layer1.0.conv1.weight`), one at a time.

    Weights are normally distributed, with variance 2 / fan-out for convolutions (He et al., 2015, arXiv:1502.01852) and
    0.01² for dense layers (Goyal et al.). Batch normalization begins with scale 1 and shift 0, a dense layer with bias
    0.
    """
    random = np.random.default_rng((seed, _WEIGHTS))
    for layer in layers:
        yield f"{layer.name}.weight", normal(random, layer.shape, _deviation(layer))


def _deviation(layer: Convolution | Dense) -> float:
    if isinstance(layer, Dense):
        return 0.01
    return sqrt(2 / (layer.outputs * prod(layer.kernel)))
