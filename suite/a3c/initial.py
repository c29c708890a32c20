"""A3C's initial weights, drawn in numpy from a seed: the same in every framework.

Weights and biases are uniform between ±1 / √(fan-in), as Torch7 drew them for DQN. The paper takes its settings from
that DQN.
"""

from math import prod, sqrt

import numpy as np

from tbdprof.suite.a3c.architecture import LAYERS
from tbdprof.suite.initial import Weights, uniform

_WEIGHTS = 2  # joined to the seed, so that each purpose draws its own random numbers


def weights(seed: int) -> Weights:
    """Yield each parameter by name (`conv1.weight`, `conv1.bias`), in the order of the layers."""
    random = np.random.default_rng((seed, _WEIGHTS))
    for layer in LAYERS:
        bound = 1 / sqrt(prod(layer.shape[1:]))
        yield f"{layer.name}.weight", uniform(random, layer.shape, bound)
        yield f"{layer.name}.bias", uniform(random, (layer.outputs,), bound)
