"""Deep Speech 2's initial weights, drawn in numpy from a seed: the same in every framework.

Weights are uniform between ±1 / √(fan-in); both weights of a recurrent layer are uniform between ±1 / √(width).
Normalizations begin with scale 1 and shift 0, biases with 0.
"""

from math import prod, sqrt

import numpy as np

from tbdprof.suite.deep_speech2 import architecture
from tbdprof.suite.deep_speech2.architecture import Normalization, Recurrent
from tbdprof.suite.initial import Weights, uniform

_WEIGHTS = 2  # joined to the seed, so that each purpose draws its own random numbers


def weights(seed: int, width: int, cell: str) -> Weights:
    """Yield each weight by name (`conv1.weight`, `recurrent1.ahead.inputs`, `recurrent1.ahead.state`), one at a time.

    The rows of a GRU's weights are those of its gates: reset, update, new.
    """
    random = np.random.default_rng((seed, _WEIGHTS))
    for layer in architecture.layers(width, cell):
        if isinstance(layer, Normalization):
            continue
        if isinstance(layer, Recurrent):
            yield f"{layer.name}.inputs", uniform(random, layer.input_shape, 1 / sqrt(width))
            yield f"{layer.name}.state", uniform(random, layer.state_shape, 1 / sqrt(width))
        else:
            yield f"{layer.name}.weight", uniform(random, layer.shape, 1 / sqrt(prod(layer.shape[1:])))
