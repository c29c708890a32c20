"""A synthetic image with objects, made from the seed alone."""

import numpy as np

from tbdprof.suite.data.inputs import DetectionBatch
from tbdprof.suite.faster_rcnn.architecture import CLASSES
from tbdprof.suite.faster_rcnn.regions import image_sides

_IMAGES = 1  # joined to the seed, so that batches and initial weights draw different random numbers


def detection_batch(shorter: int, seed: int) -> DetectionBatch:
    """Return an image of standard normal pixels with three to five boxes of uniformly drawn classes.

    The sides of a box are between an eighth of the image's shorter side and all of it.
    """
    generator = np.random.default_rng((seed, _IMAGES))
    height, width = image_sides(shorter)
    images = generator.standard_normal((1, 3, height, width), dtype=np.float32)
    objects = int(generator.integers(3, 6))
    sides = generator.uniform(shorter / 8, shorter, (objects, 2))
    corners = generator.uniform(0, 1, (objects, 2)) * (np.array([width, height]) - sides)
    boxes = np.concatenate([corners, corners + sides], axis=1).astype(np.float32)
    return DetectionBatch(images, boxes, generator.integers(1, CLASSES, size=objects))
