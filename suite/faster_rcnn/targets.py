"""What an image's training needs beside its pixels, in numpy: anchors, their sample and its targets, random orders.

Everything random is drawn here, from the seed and the image's number, so that every framework samples the same.
Anchors are matched and sampled here too, as in the authors' data loader: they depend on the objects alone. Regions
depend on the weights and are sampled in the framework, without waiting for it, by the `priorities` drawn here.
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

_SAMPLES = 2  # beside the seed, so that samples, batch and initial weights of one seed are drawn apart
_POSITIVE_OVERLAP, _NEGATIVE_OVERLAP = 0.7, 0.3  # Ren et al., section 3.1.2

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Example:
    """An image, its objects, and what its anchors shall say.

    The sample always has 256 rows: where fewer anchors are found, the rest have weight 0. The weights of the sample
    add up to 1. A region's priority, (objects + proposals,), is its place in a random order, objects first.
    """

    images: NDArray[np.float32]  # (1, 3, height, width)
    boxes: Array  # (objects, 4)
    labels: NDArray[np.int64]  # (objects,)
    anchors: Array  # (anchors, 4)
    sampled: NDArray[np.int64]  # (256,), which anchors
    positive: NDArray[np.int64]  # (256,), 1 where an anchor stands for an object
    weights: Array  # (256,)
    targets: Array  # (256, 4), deltas from an anchor to its object
    priorities: Array


def example(batch: DetectionBatch, config: Config, number: int) -> Example:
    """Return what training on an image with objects needs; its number says which samples are drawn."""
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
    """Return what training needs of the images that a configuration asks for: a data set's, or the seed's one."""
    return (example(batch, config, number) for number, batch in enumerate(_batches(config)))


def proposals(options: Options, count: int) -> int:
    """Return for how many proposals there is room after suppression, of an image with so many anchors."""
    return min(int(options["proposals_before"]), int(options["proposals_after"]), count)


def match(every: Array, boxes: Array) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.bool_]]:
    """Return each anchor's object, and whether it is positive or negative (Ren et al., section 3.1.2).

    Positive are those that overlap an object by 0.7 or more, and those that overlap one as much as any does; negative
    those of the rest that overlap every object by less than 0.3.
    """
    overlap = anchors.overlaps(every, boxes)
    best = overlap.max(axis=1)
    nearest = (overlap == overlap.max(axis=0)) & (overlap > 0)
    positive = (best >= _POSITIVE_OVERLAP) | nearest.any(axis=1)
    # One that is an object's nearest learns that object, even where it overlaps another more.
    matched = np.where(nearest.any(axis=1) & (best < _POSITIVE_OVERLAP), nearest.argmax(axis=1), overlap.argmax(axis=1))
    return matched, positive, (best < _NEGATIVE_OVERLAP) & ~positive


def _some(generator: np.random.Generator, chosen: NDArray[np.bool_], most: int) -> NDArray[np.int64]:
    return generator.permutation(np.flatnonzero(chosen))[:most]


def _batches(config: Config) -> Iterator[DetectionBatch]:
    shorter = int(config.options["image_size"])
    if config.data is None:
        return repeat(detection_batch(shorter, config.seed))
    from tbdprof.suite.data import voc

    return voc.batches(config.data, shorter, int(shorter * LONGEST), config.seed)
