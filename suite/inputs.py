"""Synthetic mini-batches, drawn in numpy from a seed: the same bytes in every framework."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_IMAGES = 1  # beside the seed, so that a batch and initial weights of one seed are drawn apart


@dataclass(frozen=True, slots=True)
class ImageBatch:
    """Normalized color images, (batch, 3, height, width), and the class of each, (batch,)."""

    images: NDArray[np.float32]
    labels: NDArray[np.int64]


def image_batch(batch_size: int, image_size: int, classes: int, seed: int) -> ImageBatch:
    """Return square images of standard normal pixels, as ImageNet's are once normalized, and uniform labels."""
    generator = np.random.default_rng((seed, _IMAGES))
    images = generator.standard_normal((batch_size, 3, image_size, image_size), dtype=np.float32)
    return ImageBatch(images, generator.integers(classes, size=batch_size))
