"""Faster R-CNN's learning check: it must find colored shapes on noise in images that it was not trained on."""

import time
from collections.abc import Iterator
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from tbdprof.suite.checks.learning import Build, Check, Learned, Point, Progress, Setting, configured
from tbdprof.suite.data.inputs import DetectionBatch
from tbdprof.suite.faster_rcnn import SPEC
from tbdprof.suite.faster_rcnn.average_precision import mean_average_precision
from tbdprof.suite.faster_rcnn.detections import Detections
from tbdprof.suite.faster_rcnn.regions import image_sides
from tbdprof.suite.faster_rcnn.targets import batches
from tbdprof.suite.workload import Learner

SHAPES = 3  # classes: a red rectangle, a green ellipse, a blue diamond
HELD_OUT = 16  # images
POINTS = 4  # of the curve, after the first
BETTER = 0.3  # by how much mean average precision must exceed chance and the untrained network

_TRAINING, _HELD_OUT = 10, 11  # joined to the seed


def run(build: Build, setting: Setting, progress: Progress) -> Learned:
    """Train Faster R-CNN on images of shapes and judge it on others."""
    steps = setting.steps or CHECK.steps
    config = configured(SPEC, CHECK, setting)
    shorter = int(config.options["image_size"])
    learner = build(config)
    held_out = list(islice(pictures(shorter, (setting.seed, _HELD_OUT)), HELD_OUT))
    curve = tuple(_train(learner, pictures(shorter, (setting.seed, _TRAINING)), held_out, steps, progress))
    chance = _precision([_as_found(batch) for batch in (*held_out[1:], held_out[0])], held_out)
    return Learned(
        measure="mAP, 11 points, at an overlap of 0.5",
        chance=chance,
        frequency_loss=None,
        curve=curve,
        data=f"{steps} generated images of {shorter} pixels, each once, with one or two of {SHAPES} coloured shapes",
        passed=curve[-1].quality >= max(chance, curve[0].quality) + BETTER and curve[-1].loss < curve[0].loss,
        rule=(
            f"mAP at least {BETTER} above that of answering each image with another's objects, and above that before "
            "training; a lower loss of new images than at first"
        ),
    )


def pictures(shorter: int, seed: tuple[int, int]) -> Iterator[DetectionBatch]:
    """Yield images of noise with one or two shapes in the color of their class, 0.6 to 1 of the shorter side."""
    generator = np.random.default_rng(seed)
    height, width = image_sides(shorter)
    while True:
        images = generator.normal(0, 0.3, (1, 3, height, width)).astype(np.float32)
        half = width // 2
        places = generator.permutation(2)[: generator.integers(1, 3)]  # halves of the image: shapes never overlap
        boxes = np.array([_box(generator, half * place, half, height) for place in places], dtype=np.float32)
        labels = generator.integers(1, SHAPES + 1, size=len(boxes))
        for box, label in zip(boxes, labels, strict=True):
            images[0, :, _inside(box, int(label), height, width)] = _color(int(label))
        yield DetectionBatch(images, boxes, labels)


def _box(generator: np.random.Generator, left: int, width: int, height: int) -> NDArray[np.float64]:
    sides = generator.uniform(0.6, 1, 2) * (width, height)
    corner = (left, 0) + generator.uniform(0, 1, 2) * ((width, height) - sides)
    return np.concatenate([corner, corner + sides])


def _inside(box: NDArray[np.float32], label: int, height: int, width: int) -> NDArray[np.bool_]:
    y, x = np.mgrid[:height, :width] + 0.5
    across = np.abs(2 * x - box[0] - box[2]) / (box[2] - box[0])
    down = np.abs(2 * y - box[1] - box[3]) / (box[3] - box[1])
    distances = {1: np.maximum(across, down), 2: np.hypot(across, down), 3: across + down}
    inside: NDArray[np.bool_] = distances[label] <= 1
    return inside


def _color(label: int) -> NDArray[np.float32]:
    return np.where(np.arange(3) == label - 1, 2, -1).astype(np.float32)


def _train(
    learner: Learner, training: Iterator[DetectionBatch], held_out: list[DetectionBatch], steps: int, progress: Progress
) -> Iterator[Point]:
    # The loss of an image is measured before the update, and no image comes twice: so it is the loss on unseen images.
    untrained, seconds, losses, last = _judge(learner, held_out), 0.0, list[float](), 0
    for step in range(1, steps + 1):
        batch = next(training)
        start = time.perf_counter()
        losses.append(learner.train(batch))
        seconds += time.perf_counter() - start
        progress(step, steps)
        if step == 1:
            yield Point(0, 0.0, losses[0], untrained)
        if step * POINTS // steps > last:
            last = step * POINTS // steps
            yield Point(step, seconds, float(np.mean(losses)), _judge(learner, held_out))
            losses.clear()


def _judge(learner: Learner, held_out: list[DetectionBatch]) -> float:
    return _precision([learner.predict(batch.images) for batch in held_out], held_out)


def _precision(found: list[Detections], held_out: list[DetectionBatch]) -> float:
    return mean_average_precision(found, [(batch.boxes.astype(np.float64), batch.labels) for batch in held_out])


def _as_found(batch: DetectionBatch) -> Detections:
    return Detections(batch.boxes.astype(np.float64), batch.labels, np.ones(len(batch.labels)))


CHECK = Check(
    run=run,
    options={"image_size": 128, "proposals_before": 600, "proposals_after": 32, "regions": 16},
    batch_size=1,
    steps=80,
    batches=batches,
)
