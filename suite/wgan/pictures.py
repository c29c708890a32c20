"""The pictures that a run trains on: synthetic ones, or those of a folder."""

from collections.abc import Iterator
from itertools import repeat

import numpy as np

from tbdprof.suite.data.inputs import Pictures
from tbdprof.suite.wgan.architecture import SIDE
from tbdprof.suite.workload import Config

_PICTURES = 1  # beside the seed, as for the other models' batches


def synthetic(batch_size: int, seed: int) -> Pictures:
    """Return pictures of independent pixels, uniform from -1 to 1."""
    random = np.random.default_rng((seed, _PICTURES))
    images = random.random((batch_size, 3, SIDE, SIDE), dtype=np.float32)
    images *= np.float32(2)
    images -= np.float32(1)
    return Pictures(images)


def batches(config: Config) -> Iterator[Pictures]:
    """Return endless batches: those of the data set, or one synthetic batch, repeated."""
    if config.data is None:
        return repeat(synthetic(config.batch_size, config.seed))
    from tbdprof.suite.data import downsampled_imagenet

    return downsampled_imagenet.batches(config.data, config.batch_size, config.seed)
