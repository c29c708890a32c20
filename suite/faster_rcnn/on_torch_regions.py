"""Regions in PyTorch: decoding, suppression, sampling and ROIAlign, in shapes that do not depend on values."""

from dataclasses import dataclass
from math import log

import torch
from torch import Tensor

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

_BLOCK = 1024  # boxes whose overlaps with each other are computed at once


@dataclass(frozen=True, slots=True)
class Proposals:
    """Boxes by falling score, (room, 4): valid ones first, then copies of the whole image to fill the rows."""

    boxes: Tensor
    valid: Tensor  # (room,)


@dataclass(frozen=True, slots=True)
class Sample:
    """The regions to train on, (regions, 4), and the targets of each; a region of weight 0 does not count."""

    regions: Tensor
    labels: Tensor  # (regions,), 0 for the background
    weights: Tensor  # (regions,)
    targets: Tensor  # (regions, 4)


def overlaps(boxes: Tensor, others: Tensor) -> Tensor:
    """Return the intersection over union, (n, m), of each of (n, 4) boxes with each of (m, 4) others."""
    low = torch.maximum(boxes[:, None, :2], others[:, :2])
    high = torch.minimum(boxes[:, None, 2:], others[:, 2:])
    shared = (high - low).clamp(min=0).prod(-1)
    union = (boxes[:, 2:] - boxes[:, :2]).prod(-1)[:, None] + (others[:, 2:] - others[:, :2]).prod(-1) - shared
    return torch.where(union > 0, shared / union, 0)


def encode(boxes: Tensor, references: Tensor) -> Tensor:
    """Return the deltas that turn each reference into the box in the same row; both are (n, 4)."""
    centres, sides = (boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2]
    reference_centres = (references[:, :2] + references[:, 2:]) / 2
    reference_sides = references[:, 2:] - references[:, :2]
    return torch.cat([(centres - reference_centres) / reference_sides, (sides / reference_sides).log()], 1)


def decode(deltas: Tensor, references: Tensor) -> Tensor:
    """Return the boxes, (n, 4), that result from applying deltas to references."""
    centres, sides = (references[:, :2] + references[:, 2:]) / 2, references[:, 2:] - references[:, :2]
    centres = centres + deltas[:, :2] * sides
    halves = sides * deltas[:, 2:].clamp(max=log(LARGEST_GROWTH)).exp() / 2
    return torch.cat([centres - halves, centres + halves], 1)


def clip(boxes: Tensor, height: int, width: int) -> Tensor:
    """Return boxes cut off at the image's edges; each side keeps at least one pixel, even of boxes outside it."""
    edges = boxes.new_tensor([width, height])
    low = torch.minimum(boxes[:, :2].clamp(min=0), edges - 1)
    return torch.cat([low, torch.minimum(torch.maximum(boxes[:, 2:], low + 1), edges)], 1)


def suppress(boxes: Tensor, overlap: float, most: int) -> Tensor:
    """Return the indices of the first `most` boxes, given by falling score, that survive greedy suppression.

    It works block by block, so that it never holds a matrix of all overlaps.
    """
    kept = boxes.new_zeros(0, dtype=torch.long)
    for start in range(0, len(boxes), _BLOCK):
        block = boxes[start : start + _BLOCK]
        free = ~(overlaps(boxes[kept], block) > overlap).any(0)
        survivors = _survivors((overlaps(block, block) > overlap).triu(1), free)
        kept = torch.cat([kept, survivors.nonzero()[:, 0] + start])[:most]
        if len(kept) == most:
            break
    return kept


def _survivors(drops: Tensor, free: Tensor) -> Tensor:
    # drops[i, j]: box i, if it survives, drops the later box j. Each round decides at least the next undecided box.
    survivors = free
    while True:
        settled = free & ~(drops & survivors[:, None]).any(0)
        if torch.equal(settled, survivors):
            return settled
        survivors = settled


@torch.no_grad()
def propose(
    scores: Tensor, deltas: Tensor, anchors: Tensor, size: tuple[int, int], before: int, after: int
) -> Proposals:
    """Return proposals from each anchor's two scores and its deltas: decoded, clipped, suppressed."""
    order = (scores[:, 1] - scores[:, 0]).topk(min(before, len(anchors))).indices
    boxes = clip(decode(deltas[order], anchors[order]), *size)
    kept = suppress(boxes, PROPOSAL_OVERLAP, min(after, len(boxes)))
    height, width = size
    room = boxes.new_tensor([0, 0, width, height]).repeat(min(after, len(boxes)), 1)
    room[: len(kept)] = boxes[kept]
    return Proposals(room, torch.arange(len(room), device=room.device) < len(kept))


@torch.no_grad()
def sample(proposals: Proposals, boxes: Tensor, labels: Tensor, priorities: Tensor, regions: int) -> Sample:
    """Return the regions to train on, chosen by priority: first foreground, at most a quarter, then background.

    The objects themselves are candidates too, listed before the proposals.
    """
    candidates = torch.cat([boxes, proposals.boxes])
    valid = torch.cat([torch.ones_like(labels, dtype=torch.bool), proposals.valid])
    best, matched = overlaps(candidates, boxes).max(1)
    foreground, background = valid & (best >= FOREGROUND_OVERLAP), valid & (best < FOREGROUND_OVERLAP)
    last = len(candidates)  # the others come last, in any order
    most = int(regions * FOREGROUND_SHARE)
    in_front = torch.where(foreground, priorities, last).argsort(stable=True)[:most]
    behind = torch.where(background, priorities, last).argsort(stable=True)[:regions]
    taken = foreground.sum().clamp(max=most)
    rank = torch.arange(regions, device=boxes.device)
    is_foreground = rank < taken
    chosen = torch.where(is_foreground, in_front[rank.clamp(max=most - 1)], behind[(rank - taken).clamp(min=0)])
    weights = (is_foreground | (rank - taken < background.sum())).to(boxes.dtype)
    objects, chosen_boxes = matched[chosen], candidates[chosen]
    targets = encode(boxes[objects], chosen_boxes) / boxes.new_tensor(BOX_DEVIATIONS)
    return Sample(chosen_boxes, torch.where(is_foreground, labels[objects], 0), weights, targets)


def align(maps: Tensor, regions: Tensor) -> Tensor:
    """Return each region's part, (regions, channels, 14, 14), of activations (1, channels, rows, columns).

    This is ROIAlign (He et al., 2017, section 3) with the mean of 2 × 2 samples per cell. Each position stands for the
    centre of its square of pixels, so that pixel x lies at x / 16 - 0.5; beyond the outermost positions their values
    continue. A region's samples form a grid, so that interpolation is a matmul along each axis.
    """
    rows, columns = maps.shape[2:]
    down = _interpolation(regions[:, 1], regions[:, 3], rows).to(maps.dtype)
    across = _interpolation(regions[:, 0], regions[:, 2], columns).to(maps.dtype)
    in_columns = torch.einsum("cyx,rjx->rcyj", maps[0], across)
    # Rearrange once here; otherwise both convolutions that read it would do so.
    return torch.einsum("riy,rcyj->rcij", down, in_columns).contiguous()


def _interpolation(low: Tensor, high: Tensor, points: int) -> Tensor:
    # (regions, 14, positions): the weight of each position in each cell.
    count = ALIGNED_SIDE * ALIGNED_SAMPLES
    steps = (torch.arange(count, dtype=low.dtype, device=low.device) + 0.5) / count
    at = (low[:, None] + (high - low)[:, None] * steps) / STRIDE - 0.5
    distances = at.clamp(0, points - 1)[..., None] - torch.arange(points, dtype=low.dtype, device=low.device)
    weights = (1 - distances.abs()).clamp(min=0)
    return weights.view(-1, ALIGNED_SIDE, ALIGNED_SAMPLES, points).mean(2)
