"""Mean average precision as Pascal VOC 2007 defines it, in numpy."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tbdprof.suite.faster_rcnn.anchors import Array, overlaps
from tbdprof.suite.faster_rcnn.detections import Detections

_OVERLAP = 0.5  # a detection finds its object above this overlap
_RECALLS = np.arange(11) / 10


def mean_average_precision(found: Sequence[Detections], objects: Sequence[tuple[Array, NDArray[np.int64]]]) -> float:
    """Return the mean of the average precisions of all classes that occur among the objects.

    `objects` holds each image's boxes and classes. After Everingham et al., The Pascal Visual Object Classes Challenge,
    2010, sections 4.2 and 4.4.
    """
    classes = np.unique(np.concatenate([labels for _, labels in objects]))
    return float(np.mean([_average_precision(found, objects, int(label)) for label in classes]))


def _average_precision(
    found: Sequence[Detections], objects: Sequence[tuple[Array, NDArray[np.int64]]], label: int
) -> float:
    judged = [
        _judge(each.boxes[each.classes == label], each.scores[each.classes == label], boxes[labels == label])
        for each, (boxes, labels) in zip(found, objects, strict=True)
    ]
    scores = np.concatenate([scores for scores, _ in judged])
    right = np.concatenate([right for _, right in judged])[np.argsort(-scores, kind="stable")]
    recall = np.cumsum(right) / sum(int((labels == label).sum()) for _, labels in objects)
    precision = np.cumsum(right) / np.arange(1, len(right) + 1)
    # The best precision at this recall or a higher one. A recall is a quotient of counts, so the comparison allows for
    # rounding.
    return float(np.mean([precision[recall >= least - 1e-9].max(initial=0) for least in _RECALLS]))


def _judge(boxes: Array, scores: Array, objects: Array) -> tuple[Array, NDArray[np.bool_]]:
    # An object is found only once: a second detection of it is wrong, as is one that overlaps another object more.
    order = np.argsort(-scores, kind="stable")
    overlap = overlaps(boxes[order], objects)
    right, taken = np.zeros(len(boxes), dtype=bool), set[int]()
    for index, row in enumerate(overlap if objects.size else []):
        best = int(row.argmax())
        if row[best] > _OVERLAP and best not in taken:
            taken.add(best)
            right[index] = True
    return scores[order], right
