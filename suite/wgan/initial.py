"""WGAN-GP's initial weights, drawn in numpy from a seed: the same in every framework.

They are uniform. The 3×3 convolutions inside blocks have variance 4 / (fan-in + fan-out), all others half of that. This
is as in the authors' code (He's and Glorot's rule over the mean of both fans). Normalizations begin with scale 1 and
shift 0, biases with 0.
"""

from collections.abc import Iterable
from math import prod, sqrt

import numpy as np

from tbdprof.suite.initial import Weights, uniform
from tbdprof.suite.layers import Dense
from tbdprof.suite.wgan import architecture
from tbdprof.suite.wgan.architecture import WIDTH, Convolution, Layer, Normalization

_GENERATOR, _CRITIC = 2, 3  # joined to the seed, so that each purpose draws its own random numbers


def generator(seed: int, width: int = WIDTH) -> Weights:
    """Yield each of the generator's weights by name (`block1.conv1.weight`), one at a time."""
    return _draw(architecture.generator(width), np.random.default_rng((seed, _GENERATOR)))


def critic(seed: int, width: int = WIDTH) -> Weights:
    """Yield each of the critic's weights by name, one at a time."""
    return _draw(architecture.critic(width), np.random.default_rng((seed, _CRITIC)))


def deviation(layer: Convolution | Dense) -> float:
    """Return the standard deviation of a layer's initial weights."""
    outputs, inputs, *kernel = layer.shape
    numerator = 4 if isinstance(layer, Convolution) and layer.he else 2
    return sqrt(numerator / ((inputs + outputs) * prod(kernel)))


def _draw(layers: Iterable[Layer], random: np.random.Generator) -> Weights:
    for layer in layers:
        if isinstance(layer, Normalization):
            continue
        yield f"{layer.name}.weight", uniform(random, layer.shape, sqrt(3) * deviation(layer))
