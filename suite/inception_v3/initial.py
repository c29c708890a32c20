"""Inception-v3's initial weights, drawn in numpy from a seed: the same in every framework."""

from collections.abc import Iterator
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from tbdprof.suite.inception_v3.architecture import Convolution, Dense, layers

_WEIGHTS = 0  # beside the seed, so that a batch and initial weights of one seed are drawn apart


def weights(seed: int) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Yield each convolution's and classifier's weight by name (`stem.conv1.conv.weight`), one at a time.

    They are normal: of variance 2 / fan-out for convolutions (He et al., 2015, arXiv:1502.01852), 0.01² for the
    classifiers (Goyal et al.). Batch normalization begins with scale 1 and shift 0, a classifier with bias 0.
    """
    generator = np.random.default_rng((seed, _WEIGHTS))
    for layer in layers():
        drawn = generator.standard_normal(layer.shape, dtype=np.float32)
        drawn *= np.float32(_deviation(layer))
        yield f"{layer.name}.weight", drawn


def _deviation(layer: Convolution | Dense) -> float:
    if isinstance(layer, Dense):
        return 0.01
    rows, columns = layer.kernel
    return sqrt(2 / (layer.outputs * rows * columns))
