"""Training data of an image in addition to its pixels, in numpy: anchors, sampled anchors and targets, random orders.

All random numbers are drawn here, from the seed and the image's number, so that every framework samples the same.
Anchors are also matched and sampled here, as in the authors' data loader, because they depend only on the objects.
Regions depend on the weights; the framework samples them, without a synchronization, by the `priorities` drawn here.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from tbdprof.suite.data.inputs import DetectionBatch
from tbdprof.suite.faster_rcnn import anchors
from tbdprof.suite.faster_rcnn.regions import LONGEST, POSITIVE_ANCHORS, SAMPLED_ANCHORS, map_sides
from tbdprof.suite.faster_rcnn.synthetic import detection_batch
from tbdprof.suite.workload import Config, Options

_SAMPLES = 2  # joined to the seed, so that samples, batch and initial weights draw different random numbers
_POSITIVE_OVERLAP, _NEGATIVE_OVERLAP = 0.7, 0.3  # Ren et al., section 3.1.2

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Example:
    """An image, its objects, and the targets of its anchors.

    The sample always has 256 rows; if fewer anchors are found, the rest have weight 0. The weights of the sample sum to
    1. A region's priority, (objects + proposals,), is its position in a random order; objects are listed first.
    """

    images: NDArray[np.float32]  # (1, 3, height, width)
    boxes: Array  # (objects, 4)
    labels: NDArray[np.int64]  # (objects,)
    anchors: Array  # (anchors, 4)
    sampled: NDArray[np.int64]  # (256,), indices of anchors
    positive: NDArray[np.int64]  # (256,), 1 if the anchor matches an object
    weights: Array  # (256,)
    targets: Array  # (256, 4), deltas from an anchor to its object
    priorities: Array


def example(batch: DetectionBatch, config: Config, number: int) -> Example:
    """Return the training example of an image with objects; its number determines the random samples."""
    generator = np.random.default_rng((config.seed, _SAMPLES, number))
    rows, columns = map_sides(*batch.images.shape[2:])
    every, boxes = anchors.anchors(rows, columns), batch.boxes.astype(np.float64)
    matched, positive, negative = match(every, boxes)
    positives = _some(generator, positive, POSITIVE_ANCHORS)
    negatives = _some(generator, negative, SAMPLED_ANCHORS - len(positives))
    sampled = np.zeros(SAMPLED_ANCHORS, dtype=np.int64)
    found = len(positives) + len(negatives)
    sampled[:found] = np.concatenate([positives, negatives])
    rank = np.arange(SAMPLED_ANCHORS)
    return Example(
        images=batch.images,
        boxes=boxes,
        labels=batch.labels,
        anchors=every,
        sampled=sampled,
        positive=(rank < len(positives)).astype(np.int64),
        weights=(rank < found) / max(found, 1),
        targets=anchors.encode(boxes[matched[sampled]], every[sampled]),
        priorities=generator.permutation(len(boxes) + proposals(config.options, len(every))).astype(np.float64),
    )


def examples(config: Config) -> Iterator[Example]:
    """Return the training examples of a configuration: from a data set, or from the seed's one synthetic image."""
    return (example(batch, config, number) for number, batch in enumerate(batches(config)))


def proposals(options: Options, count: int) -> int:
    """Return the most proposals that can remain after suppression, in an image with `count` anchors."""
    return min(int(options["proposals_before"]), int(options["proposals_after"]), count)


def match(every: Array, boxes: Array) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.bool_]]:
    """Return each anchor's object, and whether it is positive or negative (Ren et al., section 3.1.2).

    An anchor is positive if it overlaps an object by 0.7 or more, or if no anchor overlaps that object more. Of the
    others, an anchor is negative if it overlaps every object by less than 0.3.
    """
    overlap = anchors.overlaps(every, boxes)
    best = overlap.max(axis=1)
    nearest = (overlap == overlap.max(axis=0)) & (overlap > 0)
    positive = (best >= _POSITIVE_OVERLAP) | nearest.any(axis=1)
    # An anchor that is the best one for an object learns that object, even if it overlaps another object more.
    matched = np.where(nearest.any(axis=1) & (best < _POSITIVE_OVERLAP), nearest.argmax(axis=1), overlap.argmax(axis=1))
    return matched, positive, (best < _NEGATIVE_OVERLAP) & ~positive


def _some(generator: np.random.Generator, chosen: NDArray[np.bool_], most: int) -> NDArray[np.int64]:
    return generator.permutation(np.flatnonzero(chosen))[:most]


def batches(config: Config) -> Iterator[DetectionBatch]:
    """Return the endless images of a configuration: a data set's, or the seed's one synthetic image, repeated."""
    shorter = int(config.options["image_size"])
    if config.data is None:
        return repeat(detection_batch(shorter, config.seed))
    from tbdprof.suite.data import voc

    return voc.batches(config.data, shorter, int(shorter * LONGEST), config.seed)
