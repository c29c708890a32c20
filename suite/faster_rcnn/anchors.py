"""Anchors and boxes in numpy.

A box is left, top, right, bottom in continuous pixel coordinates: its width is right - left, and the image's first
pixel spans 0 to 1. Deltas are the paper's: the offset of the centre divided by the anchor's sides, and the logarithm of
the ratio of the sides (Ren et al., equation 2).
"""

from math import log

import numpy as np
from numpy.typing import NDArray

from tbdprof.suite.faster_rcnn.regions import LARGEST_GROWTH, RATIOS, SCALES, STRIDE

Array = NDArray[np.float64]


def anchors(rows: int, columns: int) -> Array:
    """Return the anchors of rows × columns positions, (rows × columns × 9, 4), ordered by ratio, then scale.

    Anchors are centred on the square of pixels that a position stands for; the scale squared gives their area.
    """
    ratios, scales = np.repeat(RATIOS, len(SCALES)), np.tile(SCALES, len(RATIOS))
    halves = np.stack([scales / np.sqrt(ratios), scales * np.sqrt(ratios)], axis=1) * (STRIDE / 2)
    y, x = np.meshgrid((np.arange(rows) + 0.5) * STRIDE, (np.arange(columns) + 0.5) * STRIDE, indexing="ij")
    centres = np.stack([x, y], axis=-1)[:, :, None]
    every: Array = np.concatenate([centres - halves, centres + halves], axis=-1).reshape(-1, 4)
    return every


def overlaps(boxes: Array, others: Array) -> Array:
    """Return the intersection over union, (n, m), of each of (n, 4) boxes with each of (m, 4) others."""
    low = np.maximum(boxes[:, None, :2], others[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], others[None, :, 2:])
    shared: Array = np.prod(np.maximum(high - low, 0), axis=-1)
    union = _areas(boxes)[:, None] + _areas(others)[None, :] - shared
    overlap: Array = np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)
    return overlap


def encode(boxes: Array, references: Array) -> Array:
    """Return the deltas that turn each reference into the box in the same row; both are (n, 4)."""
    centres, sides = _centres(boxes)
    reference_centres, reference_sides = _centres(references)
    return np.concatenate([(centres - reference_centres) / reference_sides, np.log(sides / reference_sides)], axis=-1)


def decode(deltas: Array, references: Array) -> Array:
    """Return the boxes, (n, 4), from applying deltas to references; a side grows at most `LARGEST_GROWTH`-fold."""
    centres, sides = _centres(references)
    centres = centres + deltas[..., :2] * sides
    halves = sides * np.exp(np.minimum(deltas[..., 2:], log(LARGEST_GROWTH))) / 2
    return np.concatenate([centres - halves, centres + halves], axis=-1)


def clip(boxes: Array, height: int, width: int) -> Array:
    """Return boxes cut off at the image's edges; each side keeps at least one pixel, even of boxes outside it."""
    edges = np.array([width, height])
    low = np.clip(boxes[..., :2], 0, edges - 1)
    return np.concatenate([low, np.minimum(np.maximum(boxes[..., 2:], low + 1), edges)], axis=-1)


def suppress(boxes: Array, scores: Array, overlap: float) -> NDArray[np.int64]:
    """Return by falling score the indices of boxes that no better surviving box overlaps by more than `overlap`."""
    order, kept = np.argsort(-scores, kind="stable"), []
    while order.size:
        kept.append(order[0])
        order = order[1:][overlaps(boxes[order[:1]], boxes[order[1:]])[0] <= overlap]
    return np.array(kept, dtype=np.int64)


def _areas(boxes: Array) -> Array:
    areas: Array = np.prod(boxes[:, 2:] - boxes[:, :2], axis=-1)
    return areas


def _centres(boxes: Array) -> tuple[Array, Array]:
    return (boxes[..., :2] + boxes[..., 2:]) / 2, boxes[..., 2:] - boxes[..., :2]
