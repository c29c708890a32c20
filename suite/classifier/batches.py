"""The images a classifier is trained on, and the type of its scores."""

from collections.abc import Iterator
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tbdprof.suite.classifier import CLASSES
from tbdprof.suite.data.inputs import ImageBatch, image_batch
from tbdprof.suite.workload import Config

Scores = NDArray[np.floating[Any]]  # (batch, classes), before any softmax


def batches(config: Config, image_size: int, classes: int) -> Iterator[ImageBatch]:
    """Return the batches of a configuration: those of a data set, or one synthetic batch of the seed, repeated."""
    if config.data is None:
        return repeat(image_batch(config.batch_size, image_size, classes, config.seed))
    from tbdprof.suite.data import imagenet  # imports an image decoder, which a synthetic run does not need

    return imagenet.batches(config.data, config.batch_size, image_size, classes, config.seed)


def of_run(config: Config) -> Iterator[ImageBatch]:
    """Return the batches of a run of a classifier that has `--image-size`."""
    return batches(config, int(config.options["image_size"]), CLASSES)
