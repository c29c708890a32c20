"""Deep Speech 2's initial weights, drawn in numpy from a seed: the same in every framework.

They are uniform within one over the root of the fan-in; both weights of a recurrent layer within one over the root of
its width. Normalizations begin with scale 1 and shift 0, biases with 0.
"""

from collections.abc import Iterator
from math import prod, sqrt

import numpy as np
from numpy.typing import NDArray

from tbdprof.suite.deep_speech2 import architecture
from tbdprof.suite.deep_speech2.architecture import Normalization, Recurrent

_WEIGHTS = 2  # beside the seed, so that what one seed is for is drawn apart

Weights = Iterator[tuple[str, NDArray[np.float32]]]


def weights(seed: int, width: int, cell: str) -> Weights:
    """Yield each weight by name (`conv1.weight`, `recurrent1.ahead.inputs`, `recurrent1.ahead.state`), one at a time.

    The rows of a GRU's weights are those of its gates: reset, update, new.
    """
    random = np.random.default_rng((seed, _WEIGHTS))
    for layer in architecture.layers(width, cell):
        if isinstance(layer, Normalization):
            continue
        if isinstance(layer, Recurrent):
            yield f"{layer.name}.inputs", _uniform(random, layer.input_shape, width)
            yield f"{layer.name}.state", _uniform(random, layer.state_shape, width)
        else:
            yield f"{layer.name}.weight", _uniform(random, layer.shape, prod(layer.shape[1:]))


def _uniform(random: np.random.Generator, shape: tuple[int, ...], fan_in: int) -> NDArray[np.float32]:
    drawn = random.random(shape, dtype=np.float32)
    drawn -= np.float32(0.5)
    drawn *= np.float32(2 / sqrt(fan_in))
    return drawn
