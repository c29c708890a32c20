"""The learning check of WGAN-GP: the generator learns to make small, structured pictures."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from tbdprof.suite.checks.learning import Build, Check, Learned, Point, Progress, Setting, configured
from tbdprof.suite.data.inputs import Pictures
from tbdprof.suite.wgan import SPEC
from tbdprof.suite.wgan.architecture import NOISE, SIDE
from tbdprof.suite.wgan.pictures import batches
from tbdprof.suite.wgan.products import CRITIC_STEPS
from tbdprof.suite.workload import Config, Learner

STEPS = 100
EVERY = 5  # steps from one look at the held-out pictures to the next
BATCH = 4
WIDTH = 4
HELD_OUT = 64
FALLEN = 0.5  # the share of its largest that the critic's distance must come below

_TRAINED, _HELD_OUT, _NOISE = 10, 11, 12  # joined to the seed, so that each purpose draws its own random numbers
_BLOBS = (((1.0, 0.2, -0.6), 0.3), ((-0.4, 0.9, 0.5), 0.7))  # color, mean place from left to right
_TOP, _BOTTOM = (-0.6, -0.5, 0.2), (-0.2, -0.5, -0.4)
_POOL = 8

Images = NDArray[np.float32]
Doubles = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Judge:
    """The held-out pictures and the noise with which a workload is judged."""

    held_out: Images
    noise: NDArray[np.float32]

    def look(self, workload: Learner, step: int, seconds: float) -> Point:
        made = workload.predict(self.noise)
        scores = (np.mean(workload.predict(Pictures(images))) for images in (self.held_out, made))
        real_score, made_score = (float(score) for score in scores)
        return Point(step, seconds, real_score - made_score, moments_distance(made, self.held_out))


def pictures(count: int, random: np.random.Generator) -> Images:
    """Return pictures of a reddish blob on the left and a green one on the right, at any height, on shaded ground."""
    down, across = np.mgrid[0:SIDE, 0:SIDE] / (SIDE - 1)
    ground = np.stack([top + (bottom - top) * down for top, bottom in zip(_TOP, _BOTTOM, strict=True)])
    drawn = np.repeat(ground[None], count, 0)
    for color, left in _BLOBS:
        x, y, size = (
            random.uniform(*span, (count, 1, 1)) for span in ((left - 0.1, left + 0.1), (0.25, 0.75), (0.1, 0.16))
        )
        share = np.exp(-((across - x) ** 2 + (down - y) ** 2) / (2 * size**2))[:, None]
        drawn += share * (np.reshape(color, (3, 1, 1)) - drawn)
    return drawn.astype(np.float32)


def moments_distance(ones: Images, others: Images) -> float:
    """Return how far two sets of pictures are apart in mean and covariance, in units of a pixel's value.

    It is the Fréchet distance of normal distributions (Dowson and Landau, 1982) fitted to the pictures at 8×8 pixels.
    That is divided by the square root of the number of values in such a picture.
    """
    one, other = _pooled(ones), _pooled(others)
    root = _square_root(np.cov(other.T))
    between = root @ np.cov(one.T) @ root
    spread = np.trace(np.cov(one.T)) + np.trace(np.cov(other.T)) - 2 * np.trace(_square_root(between))
    squared = np.sum((one.mean(0) - other.mean(0)) ** 2) + max(0.0, float(spread))
    return float(np.sqrt(squared / one.shape[1]))


def passes(curve: Sequence[Point], chance: float) -> bool:
    """Return whether the critic's distance rose, then fell while the generator learned, and its pictures are good.

    They are good if they are closer to the data than pictures of independent pixels with the data's colors.
    """
    distances = [point.loss for point in curve]
    largest = max(distances)
    last = fmean(distances[-(len(distances) // 3) :])
    rose = largest > 2 * abs(distances[0])
    return rose and 0 < last < FALLEN * largest and curve[-1].quality < chance


def run(build: Build, setting: Setting, progress: Progress) -> Learned:
    """Train on drawn pictures, and compare generated with held-out ones; `loss` is the critic's distance of the two."""
    steps = setting.steps or CHECK.steps
    config = configured(SPEC, CHECK, setting)
    held_out = pictures(HELD_OUT, np.random.default_rng((setting.seed, _HELD_OUT)))
    noise = np.random.default_rng((setting.seed, _NOISE)).standard_normal((HELD_OUT, NOISE), dtype=np.float32)
    curve = tuple(_curve(build(config), _Judge(held_out, noise), steps, setting.seed, progress))
    chance = moments_distance(_colored(held_out, setting.seed), held_out)
    return Learned(
        measure="distance of the pictures' mean and covariance from held-out ones' (less is better); loss: critic's",
        chance=chance,
        frequency_loss=None,
        curve=curve,
        data="drawn pictures of two colored blobs on a shaded ground, at 64 pixels",
        passed=passes(curve, chance),
        rule="the critic's distance rises, then is below half its largest in the last third, and what is made is "
        "closer to held-out pictures than independent pixels of their colors are",
    )


def _curve(workload: Learner, judge: _Judge, steps: int, seed: int, progress: Progress) -> Iterator[Point]:
    random, seconds = np.random.default_rng((seed, _TRAINED)), 0.0
    yield judge.look(workload, 0, seconds)
    for step in range(1, steps + 1):
        batch = Pictures(pictures(BATCH * CRITIC_STEPS, random))
        began = time.perf_counter()
        workload.train(batch)
        seconds += time.perf_counter() - began
        progress(step, steps)
        if step % EVERY == 0 or step == steps:
            yield judge.look(workload, step, seconds)


def _colored(images: Images, seed: int) -> Images:
    """Return pictures of independent pixels, with each channel's mean and deviation."""
    axes = (0, 2, 3)
    mean, deviation = images.mean(axes, keepdims=True), images.std(axes, keepdims=True)
    drawn = np.random.default_rng(seed).standard_normal(images.shape, dtype=np.float32)
    drawn *= deviation
    drawn += mean
    return drawn


def _pooled(images: Images) -> Doubles:
    count, colors, height, width = images.shape
    windows = images.astype(np.float64).reshape(count, colors, height // _POOL, _POOL, width // _POOL, _POOL)
    pooled: Doubles = windows.mean((3, 5)).reshape(count, -1)
    return pooled


def _square_root(matrix: Doubles) -> Doubles:
    """Return the square root of a symmetric matrix whose eigenvalues are not negative, except for rounding."""
    values, vectors = np.linalg.eigh(matrix)
    root: Doubles = (vectors * np.sqrt(np.clip(values, 0, None))) @ vectors.T
    return root


def of_run(config: Config) -> Iterator[Pictures]:
    """Yield the pictures of each step of a run: those of all steps of the critic."""
    drawn = batches(config)
    while True:
        of_step = [next(drawn).images for _ in range(int(config.options["critic_steps"]))]
        yield Pictures(np.concatenate(of_step))


CHECK = Check(run, {"width": WIDTH, "critic_steps": CRITIC_STEPS}, BATCH, STEPS, of_run)
