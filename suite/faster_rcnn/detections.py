"""Detections in an image, in numpy: turns regions' scores and deltas into boxes, classes and scores."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tbdprof.suite.faster_rcnn.anchors import Array, clip, decode, suppress
from tbdprof.suite.faster_rcnn.architecture import CLASSES
from tbdprof.suite.faster_rcnn.regions import BOX_DEVIATIONS, DETECTION_OVERLAP, DETECTION_SCORE


@dataclass(frozen=True, slots=True)
class Detections:
    """Boxes, (found, 4), their classes, counted from 1, and their scores, from 0 to 1."""

    boxes: Array
    classes: NDArray[np.int64]
    scores: Array


def detections(size: tuple[int, int], regions: Array, scores: Array, deltas: Array) -> Detections:
    """Return the detections from regions (n, 4), scores (n, 21) and deltas (n, 84) in an image of a height and width.

    Suppression is done for each class separately (Ren et al., section 3.3; Girshick, section 2.3).
    """
    shares = _softmax(scores)
    found: list[tuple[Array, NDArray[np.int64], Array]] = []
    for label in range(1, CLASSES):
        own = deltas[:, 4 * label : 4 * label + 4] * np.array(BOX_DEVIATIONS)
        boxes = clip(decode(own, regions), *size)
        sure = shares[:, label] >= DETECTION_SCORE
        kept = suppress(boxes[sure], shares[sure, label], DETECTION_OVERLAP)
        found.append((boxes[sure][kept], np.full(len(kept), label), shares[sure, label][kept]))
    boxes_found, classes, scores_found = zip(*found, strict=True)
    return Detections(np.concatenate(boxes_found), np.concatenate(classes), np.concatenate(scores_found))


def _softmax(scores: Array) -> Array:
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares: Array = powers / powers.sum(axis=1, keepdims=True)
    return shares
