"""Boxes, suppression, sampling and ROIAlign do what direct loops do, in numpy and in every framework."""

from collections.abc import Callable
from dataclasses import dataclass
from math import floor, log
from typing import Any

import mxnet as mx
import numpy as np
import pytest
import tensorflow as tf
import torch
from numpy.typing import NDArray

from tbdprof.suite.faster_rcnn import anchors, on_mxnet_regions, on_tensorflow_regions, on_torch_regions

Array = NDArray[np.float64]
SIZE = 150, 200  # of an image


@dataclass(frozen=True)
class Framework:
    """Its regions, and how to give it arrays and take them back."""

    regions: Any
    give: Callable[[Array], Any]
    take: Callable[[Any], Array]
    size: Any  # as its functions want an image's
    channels_last: bool = False


FRAMEWORKS = {
    "torch": Framework(on_torch_regions, torch.tensor, lambda values: values.numpy(), SIZE),
    "mxnet": Framework(
        on_mxnet_regions,
        lambda values: mx.nd.array(values, dtype=values.dtype if values.dtype != int else "float64"),
        lambda values: values.asnumpy(),
        SIZE,
    ),
    "tensorflow": Framework(
        on_tensorflow_regions,
        lambda values: tf.constant(values, tf.int32 if values.dtype == int else tf.float64),
        lambda values: values.numpy(),
        tf.constant(SIZE),
        channels_last=True,
    ),
}


@pytest.fixture(params=FRAMEWORKS)
def framework(request: pytest.FixtureRequest) -> Framework:
    return FRAMEWORKS[request.param]


def some_boxes(count: int, seed: int = 0) -> Array:
    generator = np.random.default_rng(seed)
    low = generator.uniform(0, 100, (count, 2))
    return np.concatenate([low, low + generator.uniform(1, 50, (count, 2))], axis=1)


def overlap(box: Array, other: Array) -> float:
    """Return the intersection over union of two boxes."""
    width = min(box[2], other[2]) - max(box[0], other[0])
    height = min(box[3], other[3]) - max(box[1], other[1])
    if width <= 0 or height <= 0:
        return 0.0
    areas = [(each[2] - each[0]) * (each[3] - each[1]) for each in (box, other)]
    return width * height / (sum(areas) - width * height)


def survivors(boxes: Array, most: float) -> list[int]:
    """Return which boxes, given by falling score, none before them that survived overlaps by more."""
    kept: list[int] = []
    for index, box in enumerate(boxes):
        if all(overlap(box, boxes[before]) <= most for before in kept):
            kept.append(index)
    return kept


def test_anchors_are_centred_on_their_square_and_keep_the_scales_area() -> None:
    every = anchors.anchors(2, 3).reshape(2, 3, 9, 4)
    root = 2**0.5

    assert every[0, 0, 3].tolist() == [8 - 64, 8 - 64, 8 + 64, 8 + 64]  # square, 8 strides
    assert every[0, 0, 5].tolist() == [8 - 256, 8 - 256, 8 + 256, 8 + 256]  # square, 32 strides
    assert every[0, 0, 0] == pytest.approx([8 - 64 * root, 8 - 32 * root, 8 + 64 * root, 8 + 32 * root])  # lying
    assert every[0, 0, 7] == pytest.approx([8 - 64 * root, 8 - 128 * root, 8 + 64 * root, 8 + 128 * root])  # standing
    assert every[1, 2] - every[0, 0] == pytest.approx(np.tile([32, 16, 32, 16], (9, 1)))


def test_an_overlap_worked_by_hand() -> None:
    boxes = np.array([[0, 0, 2, 2], [1, 1, 3, 3], [2, 0, 4, 2], [5, 5, 5, 5]], dtype=float)

    assert anchors.overlaps(boxes[:1], boxes).tolist() == [[1, 1 / 7, 0, 0]]
    assert anchors.overlaps(boxes[3:], boxes[3:]).tolist() == [[0]]


def test_deltas_worked_by_hand() -> None:
    box, reference = np.array([[6.0, 2, 10, 10]]), np.array([[0.0, 0, 8, 4]])

    assert anchors.encode(box, reference) == pytest.approx(np.array([[4 / 8, 4 / 4, log(4 / 8), log(8 / 4)]]))


def test_decoding_undoes_coding_and_bounds_growth() -> None:
    boxes, references = some_boxes(50, 1), some_boxes(50, 2)
    grown = anchors.decode(np.array([[0.0, 0, 1000, 0]]), np.array([[0.0, 0, 16, 16]]))

    assert anchors.decode(anchors.encode(boxes, references), references) == pytest.approx(boxes, rel=1e-12)
    assert grown == pytest.approx(np.array([[8 - 500, 0, 8 + 500, 16]]))


def test_clipping_leaves_a_pixel() -> None:
    boxes = np.array([[-5.0, -5, 300, 300], [250, 10, 260, 20], [-9, -9, -1, -1], [3, 3, 3.5, 9]])
    clipped = [[0, 0, 200, 150], [199, 10, 200, 20], [0, 0, 1, 1], [3, 3, 4, 9]]

    assert anchors.clip(boxes, *SIZE).tolist() == clipped


def test_every_framework_codes_decodes_and_clips_alike(framework: Framework) -> None:
    boxes, references = some_boxes(50, 1), some_boxes(50, 2)
    given, given_references = framework.give(boxes), framework.give(references)
    sides = (framework.size,) if framework.channels_last else framework.size
    deltas = anchors.encode(boxes, references)
    outside = boxes * 3 - 100

    coded = framework.regions.encode(given, given_references)
    assert framework.take(coded) == pytest.approx(deltas, rel=1e-12)
    decoded = framework.regions.decode(framework.give(deltas * 3), given_references)
    assert framework.take(decoded) == pytest.approx(anchors.decode(deltas * 3, references), rel=1e-12)
    clipped = framework.regions.clip(framework.give(outside), *sides)
    assert framework.take(clipped).tolist() == anchors.clip(outside, *SIZE).tolist()
    shared = framework.regions.overlaps(given, given_references)
    assert framework.take(shared) == pytest.approx(anchors.overlaps(boxes, references), rel=1e-12)


def test_the_reference_suppresses_as_a_direct_loop_does() -> None:
    boxes, scores = some_boxes(300), np.random.default_rng(3).permutation(300).astype(float)
    order = np.argsort(-scores)

    assert anchors.suppress(boxes, scores, 0.7).tolist() == order[survivors(boxes[order], 0.7)].tolist()
    assert anchors.suppress(boxes[:0], scores[:0], 0.7).tolist() == []


@pytest.fixture(scope="module")
def scored() -> tuple[tuple[Array, Array, Array], Array]:
    """Return scores, deltas and anchors, and which boxes of the best 1,400 survive: more than torch's block holds."""
    generator = np.random.default_rng(4)
    scores, deltas, every = generator.normal(size=(1500, 2)), generator.normal(0, 0.2, (1500, 4)), some_boxes(1500)
    order = np.argsort(scores[:, 0] - scores[:, 1])[:1400]
    boxes = anchors.clip(anchors.decode(deltas, every), *SIZE)[order]
    return (scores, deltas, every), boxes[survivors(boxes, 0.7)]


def test_every_framework_proposes_the_boxes_that_survive_a_direct_loop(
    framework: Framework, scored: tuple[tuple[Array, Array, Array], Array]
) -> None:
    given, expected = [framework.give(values) for values in scored[0]], scored[1]

    proposals = framework.regions.propose(*given, framework.size, 1400, 1350)
    found, valid = framework.take(proposals.boxes), framework.take(proposals.valid).astype(bool)
    assert 1024 < len(expected) < 1350
    assert (len(found), valid.sum()) == (1350, len(expected))
    assert found[valid] == pytest.approx(expected, rel=1e-12)
    assert (found[~valid] == [0, 0, 200, 150]).all()
    fewer = framework.take(framework.regions.propose(*given, framework.size, 1400, 100).boxes)
    assert fewer == pytest.approx(expected[:100], rel=1e-12)


def sampled(candidates: Array, valid: Array, boxes: Array, priorities: Array, regions: int) -> tuple[list[int], int]:
    """Return which candidates are sampled, foreground first, and how many of them are foreground."""
    foreground, background = list[int](), list[int]()
    for index in np.argsort(priorities):
        if valid[index]:
            found = max(overlap(candidates[index], box) for box in boxes) >= 0.5
            (foreground if found else background).append(int(index))
    front = foreground[: regions // 4]
    return front + background[: regions - len(front)], len(front)


@pytest.mark.parametrize(("regions", "near"), [(32, 20), (32, 3), (96, 3)])
def test_every_framework_samples_by_priority(framework: Framework, regions: int, near: int) -> None:
    generator = np.random.default_rng(5)
    boxes, labels = np.array([[10.0, 10, 60, 60], [80, 20, 140, 90]]), np.array([3, 7])
    proposed = np.concatenate([boxes[generator.integers(2, size=near)] + generator.uniform(-4, 4, (near, 4))])
    proposed = np.concatenate([proposed, some_boxes(98 - near)])
    valid = np.arange(98) < 90
    priorities = generator.permutation(100).astype(float)
    candidates = np.concatenate([boxes, proposed])
    chosen, front = sampled(candidates, np.concatenate([[True, True], valid]), boxes, priorities, regions)

    give = framework.give
    mask = give(valid.astype(float)) if framework is FRAMEWORKS["mxnet"] else None
    if mask is None:
        mask = torch.tensor(valid) if framework is FRAMEWORKS["torch"] else tf.constant(valid)
    proposals = framework.regions.Proposals(give(proposed), mask)
    sample = framework.regions.sample(proposals, give(boxes), give(labels), give(priorities), regions)
    weights, found = framework.take(sample.weights), framework.take(sample.regions)

    assert weights.tolist() == [1.0] * len(chosen) + [0.0] * (regions - len(chosen))
    assert found[: len(chosen)].tolist() == candidates[chosen].tolist()
    nearest = [max((0, 1), key=lambda box: overlap(candidates[index], boxes[box])) for index in chosen[:front]]
    said = framework.take(sample.labels)
    assert said[: len(chosen)].tolist() == labels[nearest].tolist() + [0] * (len(chosen) - front)
    targets = anchors.encode(boxes[nearest], candidates[chosen[:front]]) / (0.1, 0.1, 0.2, 0.2)
    assert framework.take(sample.targets)[:front] == pytest.approx(targets, rel=1e-12)
    assert np.isfinite(framework.take(sample.targets)).all()


def aligned(maps: Array, region: Array) -> Array:
    """Return ROIAlign of maps (channels, rows, columns) by its definition, cell by cell and sample by sample."""
    channels, rows, columns = maps.shape
    cells = np.zeros((channels, 14, 14))
    for i, j, down, across in np.ndindex(14, 14, 2, 2):
        y = (region[1] + (region[3] - region[1]) * (2 * i + down + 0.5) / 28) / 16 - 0.5
        x = (region[0] + (region[2] - region[0]) * (2 * j + across + 0.5) / 28) / 16 - 0.5
        y, x = min(max(y, 0), rows - 1), min(max(x, 0), columns - 1)
        top, left = floor(y), floor(x)
        bottom, right = min(top + 1, rows - 1), min(left + 1, columns - 1)
        upper = maps[:, top, left] * (1 - x + left) + maps[:, top, right] * (x - left)
        lower = maps[:, bottom, left] * (1 - x + left) + maps[:, bottom, right] * (x - left)
        cells[:, i, j] += (upper * (1 - y + top) + lower * (y - top)) / 4
    return cells


def align(framework: Framework, maps: Array, regions: Array) -> Array:
    if not framework.channels_last:
        return framework.take(framework.regions.align(framework.give(maps[None]), framework.give(regions)))
    cells = framework.regions.align(framework.give(maps[None].transpose(0, 2, 3, 1)), framework.give(regions))
    return framework.take(cells).transpose(0, 3, 1, 2)


def test_every_framework_aligns_as_a_direct_loop_does(framework: Framework) -> None:
    maps = np.random.default_rng(6).normal(size=(2, 10, 13))
    regions = np.array([[0.0, 0, 200, 150], [33, 20, 34, 21], [150, 120, 200, 150], [17.3, 40.9, 133.1, 88.8]])
    expected = np.stack([aligned(maps, region) for region in regions])

    assert align(framework, maps, regions) == pytest.approx(expected, abs=1e-12)
    assert np.abs(align(framework, maps, regions + 8) - expected).max() > 0.1  # half a point away
    assert np.abs(align(framework, maps, regions[:, [1, 0, 3, 2]]) - expected).max() > 0.1  # axes exchanged


def test_aligning_a_ramp_gives_the_pixels_themselves(framework: Framework) -> None:
    y, x = np.mgrid[:10, :13] * 16.0 + 8  # the centres of the points' squares
    cells = align(framework, np.stack([y, x]), np.array([[20.0, 30, 76, 100]]))

    assert cells[0, 0, :, 0] == pytest.approx(30 + 5 * (np.arange(14) + 0.5))
    assert cells[0, 1, 0] == pytest.approx(20 + 4 * (np.arange(14) + 0.5))
