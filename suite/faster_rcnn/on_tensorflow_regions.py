"""Regions in TensorFlow: decoding, suppression, sampling and ROIAlign, in shapes that do not depend on values."""

from math import log
from typing import NamedTuple

import tensorflow as tf

from tbdprof.suite.faster_rcnn.regions import (
    ALIGNED_SAMPLES,
    ALIGNED_SIDE,
    BOX_DEVIATIONS,
    FOREGROUND_OVERLAP,
    FOREGROUND_SHARE,
    LARGEST_GROWTH,
    PROPOSAL_OVERLAP,
    STRIDE,
)


class Proposals(NamedTuple):
    """Boxes by falling score, (room, 4): valid ones first, then copies of the whole image to fill the rows."""

    boxes: tf.Tensor
    valid: tf.Tensor  # (room,)


class Sample(NamedTuple):
    """The regions to train on, (regions, 4), and the targets of each; a region of weight 0 does not count."""

    regions: tf.Tensor
    labels: tf.Tensor  # (regions,), 0 for the background
    weights: tf.Tensor  # (regions,)
    targets: tf.Tensor  # (regions, 4)


def overlaps(boxes: tf.Tensor, others: tf.Tensor) -> tf.Tensor:
    """Return the intersection over union, (n, m), of each of (n, 4) boxes with each of (m, 4) others."""
    low = tf.maximum(boxes[:, None, :2], others[:, :2])
    high = tf.minimum(boxes[:, None, 2:], others[:, 2:])
    shared = tf.reduce_prod(tf.nn.relu(high - low), axis=-1)
    areas, other_areas = (tf.reduce_prod(each[:, 2:] - each[:, :2], axis=-1) for each in (boxes, others))
    return tf.math.divide_no_nan(shared, areas[:, None] + other_areas - shared)


def encode(boxes: tf.Tensor, references: tf.Tensor) -> tf.Tensor:
    """Return the deltas that turn each reference into the box in the same row; both are (n, 4)."""
    centres, sides = (boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2]
    reference_centres = (references[:, :2] + references[:, 2:]) / 2
    reference_sides = references[:, 2:] - references[:, :2]
    return tf.concat([(centres - reference_centres) / reference_sides, tf.math.log(sides / reference_sides)], 1)


def decode(deltas: tf.Tensor, references: tf.Tensor) -> tf.Tensor:
    """Return the boxes, (n, 4), that result from applying deltas to references."""
    centres, sides = (references[:, :2] + references[:, 2:]) / 2, references[:, 2:] - references[:, :2]
    centres = centres + deltas[:, :2] * sides
    halves = sides * tf.exp(tf.minimum(deltas[:, 2:], log(LARGEST_GROWTH))) / 2
    return tf.concat([centres - halves, centres + halves], 1)


def clip(boxes: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    """Return boxes cut off at the image's edges; each side keeps at least one pixel, even of boxes outside it."""
    edges = tf.cast(tf.stack([size[1], size[0]]), boxes.dtype)
    low = tf.minimum(tf.nn.relu(boxes[:, :2]), edges - 1)
    return tf.concat([low, tf.minimum(tf.maximum(boxes[:, 2:], low + 1), edges)], 1)


def suppress(boxes: tf.Tensor, overlap: float, most: tf.Tensor) -> tf.Tensor:
    """Return the indices of the first `most` boxes, given by falling score, that survive greedy suppression.

    TensorFlow supports at most float32 here. Only the order of the scores matters, so their ranks are used: ranks are
    exact in float32.
    """
    falling = -tf.range(tf.shape(boxes)[0])
    return tf.image.non_max_suppression(tf.cast(boxes, tf.float32), tf.cast(falling, tf.float32), most, overlap)


def propose(
    scores: tf.Tensor, deltas: tf.Tensor, anchors: tf.Tensor, size: tf.Tensor, before: int, after: int
) -> Proposals:
    """Return proposals from each anchor's two scores and its deltas: decoded, clipped, suppressed, without gradient."""
    scores, deltas = tf.stop_gradient(scores), tf.stop_gradient(deltas)
    count = tf.minimum(before, tf.shape(anchors)[0])
    order = tf.math.top_k(scores[:, 1] - scores[:, 0], count).indices
    boxes = clip(decode(tf.gather(deltas, order), tf.gather(anchors, order)), size)
    room = tf.minimum(after, count)
    kept = suppress(boxes, PROPOSAL_OVERLAP, room)
    found = tf.size(kept)
    image = tf.cast([[0, 0, size[1], size[0]]], boxes.dtype)
    filled = tf.concat([tf.gather(boxes, kept), tf.tile(image, [room - found, 1])], 0)
    return Proposals(filled, tf.range(room) < found)


def sample(proposals: Proposals, boxes: tf.Tensor, labels: tf.Tensor, priorities: tf.Tensor, regions: int) -> Sample:
    """Return the regions to train on, chosen by priority: first foreground, at most a quarter, then background.

    The objects themselves are candidates too, listed before the proposals.
    """
    candidates = tf.concat([boxes, proposals.boxes], 0)
    valid = tf.concat([tf.ones_like(labels, tf.bool), proposals.valid], 0)
    overlap = overlaps(candidates, boxes)
    best, matched = tf.reduce_max(overlap, 1), tf.argmax(overlap, 1, tf.int32)
    foreground, background = valid & (best >= FOREGROUND_OVERLAP), valid & (best < FOREGROUND_OVERLAP)
    last = tf.cast(tf.shape(candidates)[0], priorities.dtype)  # the others come last, in any order
    most = int(regions * FOREGROUND_SHARE)
    in_front = tf.argsort(tf.where(foreground, priorities, last), stable=True)[:most]
    behind = tf.argsort(tf.where(background, priorities, last), stable=True)[:regions]
    taken = tf.minimum(_count(foreground), most)
    rank = tf.range(regions)
    is_foreground = rank < taken
    from_behind = tf.maximum(rank - taken, 0)
    chosen = tf.where(is_foreground, tf.gather(in_front, tf.minimum(rank, most - 1)), tf.gather(behind, from_behind))
    weights = tf.cast(is_foreground | (from_behind < _count(background)), boxes.dtype)
    objects, chosen_boxes = tf.gather(matched, chosen), tf.gather(candidates, chosen)
    targets = encode(tf.gather(boxes, objects), chosen_boxes) / tf.constant(BOX_DEVIATIONS, boxes.dtype)
    return Sample(chosen_boxes, tf.where(is_foreground, tf.gather(labels, objects), 0), weights, targets)


def align(maps: tf.Tensor, regions: tf.Tensor) -> tf.Tensor:
    """Return each region's part, (regions, 14, 14, channels), of activations (1, rows, columns, channels).

    This is ROIAlign (He et al., 2017, section 3) with the mean of 2 × 2 samples per cell. Each position stands for the
    centre of its square of pixels, so that pixel x lies at x / 16 - 0.5; beyond the outermost positions their values
    continue. A region's samples form a grid, so that interpolation is a matmul along each axis.
    """
    rows, columns = tf.unstack(tf.shape(maps)[1:3])
    down = tf.cast(_interpolation(regions[:, 1], regions[:, 3], rows), maps.dtype)
    across = tf.cast(_interpolation(regions[:, 0], regions[:, 2], columns), maps.dtype)
    in_rows = tf.einsum("riy,yxc->rixc", down, maps[0])
    return tf.matmul(across[:, None], in_rows)


def _interpolation(low: tf.Tensor, high: tf.Tensor, points: tf.Tensor) -> tf.Tensor:
    # (regions, 14, positions): the weight of each position in each cell.
    count = ALIGNED_SIDE * ALIGNED_SAMPLES
    steps = (tf.range(count, dtype=low.dtype) + 0.5) / count
    at = (low[:, None] + (high - low)[:, None] * steps) / STRIDE - 0.5
    last = tf.cast(points, low.dtype) - 1
    inside = tf.clip_by_value(at, tf.cast(0, low.dtype), last)
    weights = tf.nn.relu(1 - tf.abs(inside[..., None] - tf.range(last + 1, dtype=low.dtype)))
    return tf.reduce_mean(tf.reshape(weights, (-1, ALIGNED_SIDE, ALIGNED_SAMPLES, points)), 2)


def _count(chosen: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(tf.cast(chosen, tf.int32))
