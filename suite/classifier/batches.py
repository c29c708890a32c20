"""The images a classifier is trained on, and what it says of them."""

from collections.abc import Iterator
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tbdprof.suite.data.inputs import ImageBatch, image_batch
from tbdprof.suite.workload import Config

Scores = NDArray[np.floating[Any]]  # (batch, classes), before any softmax


def batches(config: Config, image_size: int, classes: int) -> Iterator[ImageBatch]:
    """Return the batches a configuration asks for: a data set's, or the seed's one again and again."""
    if config.data is None:
        return repeat(image_batch(config.batch_size, image_size, classes, config.seed))
    from tbdprof.suite.data import imagenet  # brings its decoder, which a synthetic run does without

    return imagenet.batches(config.data, config.batch_size, image_size, classes, config.seed)
