"""Regions in MXNet: decoding, suppression and sampling, in shapes that do not depend on values."""

from math import log
from typing import NamedTuple

import mxnet as mx
from mxnet import nd

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
    """Boxes by falling score, (room, 4): valid ones (1) first, then copies of the whole image (0) to fill the rows."""

    boxes: mx.nd.NDArray
    valid: mx.nd.NDArray  # (room,)


class Sample(NamedTuple):
    """The regions to train on, (regions, 4), and the targets of each; a region of weight 0 does not count."""

    regions: mx.nd.NDArray
    labels: mx.nd.NDArray  # (regions,), 0 for the background
    weights: mx.nd.NDArray  # (regions,)
    targets: mx.nd.NDArray  # (regions, 4)


def overlaps(boxes: mx.nd.NDArray, others: mx.nd.NDArray) -> mx.nd.NDArray:
    """Return the intersection over union, (n, m), of each of (n, 4) boxes with each of (m, 4) others."""
    return nd.contrib.box_iou(boxes, others)


def encode(boxes: mx.nd.NDArray, references: mx.nd.NDArray) -> mx.nd.NDArray:
    """Return the deltas that turn each reference into the box in the same row; both are (n, 4)."""
    centres, sides = _centres(boxes)
    reference_centres, reference_sides = _centres(references)
    return nd.concat((centres - reference_centres) / reference_sides, nd.log(sides / reference_sides), dim=1)


def decode(deltas: mx.nd.NDArray, references: mx.nd.NDArray) -> mx.nd.NDArray:
    """Return the boxes, (n, 4), that result from applying deltas to references."""
    centres, sides = _centres(references)
    centres = centres + deltas[:, :2] * sides
    halves = sides * nd.exp(nd.minimum(deltas[:, 2:], log(LARGEST_GROWTH))) / 2
    return nd.concat(centres - halves, centres + halves, dim=1)


def clip(boxes: mx.nd.NDArray, height: int, width: int) -> mx.nd.NDArray:
    """Return boxes cut off at the image's edges; each side keeps at least one pixel, even of boxes outside it."""
    edges = nd.array([[width, height]], ctx=boxes.context, dtype=boxes.dtype)
    low = nd.broadcast_minimum(nd.maximum(boxes[:, :2], 0), edges - 1)
    return nd.concat(low, nd.broadcast_minimum(nd.maximum(boxes[:, 2:], low + 1), edges), dim=1)


def suppress(boxes: mx.nd.NDArray, overlap: float, room: int) -> tuple[mx.nd.NDArray, mx.nd.NDArray]:
    """Return the boxes, given by falling score, that survive greedy suppression, and 1 for each that exists, else 0."""
    count = boxes.shape[0]
    falling = nd.arange(count, 0, -1, ctx=boxes.context, dtype=boxes.dtype)
    scored = nd.concat(falling.reshape((-1, 1)), boxes, dim=1)
    # MXNet lists the survivors first, in their order, and then -1 for all others.
    kept = nd.contrib.box_nms(scored, overlap, valid_thresh=0, coord_start=1, score_index=0, force_suppress=True)
    return kept[:room, 1:], kept[:room, 0] > 0


def propose(
    scores: mx.nd.NDArray,
    deltas: mx.nd.NDArray,
    anchors: mx.nd.NDArray,
    size: tuple[int, int],
    before: int,
    after: int,
) -> Proposals:
    """Return proposals from each anchor's two scores and its deltas: decoded, clipped, suppressed."""
    count = min(before, anchors.shape[0])
    order = nd.topk(scores[:, 1] - scores[:, 0], k=count, dtype="int32")
    boxes = clip(decode(nd.take(deltas, order), nd.take(anchors, order)), *size)
    kept, valid = suppress(boxes, PROPOSAL_OVERLAP, min(after, count))
    image = nd.array([[0, 0, size[1], size[0]]], ctx=boxes.context, dtype=boxes.dtype)
    return Proposals(nd.where(valid, kept, nd.broadcast_to(image, kept.shape)), valid)


def sample(
    proposals: Proposals, boxes: mx.nd.NDArray, labels: mx.nd.NDArray, priorities: mx.nd.NDArray, regions: int
) -> Sample:
    """Return the regions to train on, chosen by priority: first foreground, at most a quarter, then background.

    The objects themselves are candidates too, listed before the proposals.
    """
    candidates = nd.concat(boxes, proposals.boxes, dim=0)
    valid = nd.concat(nd.ones_like(labels), proposals.valid, dim=0)
    overlap = overlaps(candidates, boxes)
    best, matched = nd.max(overlap, axis=1), nd.argmax(overlap, axis=1)
    foreground, background = valid * (best >= FOREGROUND_OVERLAP), valid * (best < FOREGROUND_OVERLAP)
    most = int(regions * FOREGROUND_SHARE)
    in_front, behind = (_ordered(chosen, priorities) for chosen in (foreground, background))
    taken = nd.minimum(nd.sum(foreground), most)
    rank = nd.arange(regions, ctx=boxes.context, dtype=boxes.dtype)
    is_foreground = nd.broadcast_lesser(rank, taken)
    from_behind = nd.maximum(nd.broadcast_sub(rank, taken), 0)
    chosen = nd.where(is_foreground, nd.take(in_front, nd.minimum(rank, most - 1)), nd.take(behind, from_behind))
    enough = nd.broadcast_lesser(from_behind, nd.sum(background))
    objects, chosen_boxes = nd.take(matched, chosen), nd.take(candidates, chosen)
    targets = encode(nd.take(boxes, objects), chosen_boxes)
    deviations = nd.array([BOX_DEVIATIONS], ctx=boxes.context, dtype=boxes.dtype)
    return Sample(
        chosen_boxes,
        nd.take(labels, objects) * is_foreground,
        nd.maximum(is_foreground, enough),
        nd.broadcast_div(targets, deviations),
    )


def align(maps: mx.nd.NDArray, regions: mx.nd.NDArray) -> mx.nd.NDArray:
    """Return each region's part, (regions, channels, 14, 14), of activations (1, channels, rows, columns).

    This is ROIAlign (He et al., 2017, section 3) with the mean of 2 × 2 samples per cell. Each position stands for the
    centre of its square of pixels, so that pixel x lies at x / 16 - 0.5; beyond the outermost positions their values
    continue.
    """
    in_image = nd.concat(nd.zeros_like(regions[:, :1]), regions, dim=1)
    return nd.contrib.ROIAlign(
        maps, in_image, (ALIGNED_SIDE, ALIGNED_SIDE), 1 / STRIDE, sample_ratio=ALIGNED_SAMPLES, aligned=True
    )


def _ordered(chosen: mx.nd.NDArray, priorities: mx.nd.NDArray) -> mx.nd.NDArray:
    # Candidates that are not chosen come last, in any order.
    last = nd.full(priorities.shape, priorities.shape[0], ctx=priorities.context, dtype=priorities.dtype)
    return nd.argsort(nd.where(chosen, priorities, last), dtype=priorities.dtype)


def _centres(boxes: mx.nd.NDArray) -> tuple[mx.nd.NDArray, mx.nd.NDArray]:
    return (boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2]
