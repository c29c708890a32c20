"""The learning check of image classifiers: training on images whose classes are easy to see, so that it is quick."""

import time
from collections.abc import Iterator
from math import comb, pi

import numpy as np
from numpy.typing import NDArray

from tbdprof.suite.checks.learning import Build, Check, Learned, Point, Progress, Setting
from tbdprof.suite.classifier.batches import Scores
from tbdprof.suite.data.inputs import ImageBatch
from tbdprof.suite.workload import Config, Learner

_GRATINGS = 2  # joined to the seed, so that these images and initial weights draw different random numbers
_SHOWN = 10  # number of classes that have a grating
_HELD_OUT = 4  # held-out images of each class
_BY_CHANCE = 1e-6  # the largest probability that guessing passes the check
_POINTS = 4  # of the curve, after the first


def gratings(labels: NDArray[np.int64], image_size: int, *seed: int) -> ImageBatch:
    """Return noisy colored stripes: the class sets direction and hue; phase and wavelength (6-12 pixels) are random."""
    generator = np.random.default_rng((*seed, _GRATINGS))
    count = len(labels)
    rows, columns = np.mgrid[:image_size, :image_size].astype(np.float32)
    angles = (labels * pi / _SHOWN).reshape(-1, 1, 1)
    wavelengths, phases = generator.uniform(6, 12, (count, 1, 1)), generator.uniform(0, 2 * pi, (count, 1, 1))
    stripes = np.sin(2 * pi * (columns * np.cos(angles) + rows * np.sin(angles)) / wavelengths + phases)
    colors = np.cos(2 * angles - 2 * pi * np.arange(3).reshape(1, 3, 1) / 3)[..., None]
    images = np.float32(0.5) * generator.standard_normal((count, 3, image_size, image_size), dtype=np.float32)
    images += (stripes[:, None] + colors).astype(np.float32)
    return ImageBatch(images, labels)


def learn(check: Check, build: Build, setting: Setting, progress: Progress, rate_of: int) -> Learned:
    """Train a network on gratings and judge it on others; the result's `rule` says what must hold.

    The network is built for batches of `rate_of` images, and so gets their learning rate, which is linear in the batch
    size. With ten classes instead of a thousand, a batch has a hundred times as many images of each class; at the
    learning rate of `check.batch_size` the loss oscillates.
    """
    image_size = int(check.options["image_size"])
    learner = build(Config(rate_of, setting.device, setting.precision, setting.seed, check.options))
    labels = np.repeat(np.arange(_SHOWN), _HELD_OUT)
    held_out = gratings(labels, image_size, setting.seed)
    steps = check.steps if setting.steps is None else setting.steps
    progress(0, steps)
    curve = [_judged(learner, held_out, check.batch_size, 0, 0.0)]
    seconds = 0.0
    for step, batch in enumerate(_batches(check.batch_size, image_size, setting.seed, steps), 1):
        began = time.monotonic()
        learner.train(batch)
        seconds += time.monotonic() - began
        progress(step, steps)
        if step in _judged_at(steps):
            curve.append(_judged(learner, held_out, check.batch_size, step, seconds))
    return _learned(tuple(curve), labels)


def top_1_beyond_chance(count: int, chance: float) -> int:
    """Return the least number of correct answers of `count` that guessing reaches less than once in a million."""
    tail = 0.0
    for right in range(count, -1, -1):
        tail += comb(count, right) * chance**right * (1 - chance) ** (count - right)
        if tail >= _BY_CHANCE:
            return right + 1
    return 0


def mean_cross_entropy(scores: Scores, labels: NDArray[np.int64]) -> float:
    """Return the mean cross entropy of scores with labels."""
    shifted = scores.astype(np.float64) - scores.max(axis=1, keepdims=True)
    of_labels = shifted[np.arange(len(labels)), labels]
    return float((np.log(np.exp(shifted).sum(axis=1)) - of_labels).mean())


def frequency_loss(labels: NDArray[np.int64]) -> float:
    """Return the mean cross entropy of predicting each class with its frequency among the labels."""
    _, counts = np.unique(labels, return_counts=True)
    frequencies = counts / len(labels)
    return float(-(frequencies * np.log(frequencies)).sum())


def _batches(batch_size: int, image_size: int, seed: int, count: int) -> Iterator[ImageBatch]:
    for index in range(1, count + 1):
        labels = np.random.default_rng((seed, _GRATINGS, index)).integers(_SHOWN, size=batch_size)
        yield gratings(labels, image_size, seed, index)


def _judged_at(steps: int) -> set[int]:
    return {round(steps * part / _POINTS) for part in range(1, _POINTS + 1)}


def _judged(learner: Learner, held_out: ImageBatch, batch_size: int, step: int, seconds: float) -> Point:
    """Return the figures on held-out images, predicted with the running statistics, as in inference."""
    starts = range(0, len(held_out.labels), batch_size)
    scores = np.concatenate([learner.predict(held_out.images[start : start + batch_size]) for start in starts])
    right = float((scores.argmax(axis=1) == held_out.labels).mean())
    return Point(step, seconds, mean_cross_entropy(scores, held_out.labels), right)


def _learned(curve: tuple[Point, ...], labels: NDArray[np.int64]) -> Learned:
    chance = float(np.unique(labels, return_counts=True)[1].max()) / len(labels)
    asked, guessed = top_1_beyond_chance(len(labels), chance), frequency_loss(labels)
    last = curve[-1]
    return Learned(
        measure="top-1",
        chance=chance,
        frequency_loss=guessed,
        curve=curve,
        data=f"noisy stripes, {_SHOWN} classes by direction and color, drawn from the seed; {len(labels)} held out",
        passed=last.loss < guessed and round(last.quality * len(labels)) >= asked,
        rule=(
            f"held-out loss below that of the frequencies, and {asked} of {len(labels)} right, which guessing reaches "
            f"less than once in a million times (binomial)"
        ),
    )
