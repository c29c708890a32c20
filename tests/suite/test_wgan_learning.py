"""What must hold for WGAN-GP to be said to learn, and what is caught when it does not."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tbdprof import suite
from tbdprof.suite.checks.learning import Point, Setting
from tbdprof.suite.data import downsampled_imagenet
from tbdprof.suite.data.inputs import Pictures
from tbdprof.suite.wgan import SPEC, learning, on_torch
from tbdprof.suite.wgan.pictures import synthetic
from tbdprof.suite.workload import Config, Learner

CHANCE = 0.3


def curve(*distances: float, quality: float = 0.1) -> list[Point]:
    return [Point(step, 0.0, distance, quality) for step, distance in enumerate(distances)]


@pytest.mark.parametrize(
    ("points", "passed"),
    [
        (curve(0, 40, 50, 30, 15, 10), True),
        (curve(0, 40, 50, 50, 48, 50), False),  # nothing is made that pleases the critic
        (curve(0, 0, 0, 0, 0, 0), False),  # the critic learns nothing
        (curve(50, 40, 30, 20, 10, 5), False),  # it knew from the first: it never rose
        (curve(0, 40, 50, 30, -15, -10), False),  # it is beaten, and cannot judge any more
        (curve(0, 40, 50, 30, 15, 10, quality=0.31), False),  # it is pleased by what does not look like the data
        (curve(0, 40, 50, 30, 15, float("nan")), False),
    ],
)
def test_the_distance_must_rise_and_fall_and_the_pictures_come_close(points: list[Point], passed: bool) -> None:
    assert learning.passes(points, CHANCE) is passed


def test_the_distance_of_moments_is_that_of_the_means_where_all_else_is_equal() -> None:
    drawn = learning.pictures(40, np.random.default_rng(0))

    assert learning.moments_distance(drawn, drawn) < 1e-6
    assert learning.moments_distance(drawn + 0.25, drawn) == pytest.approx(0.25, rel=1e-5)
    assert learning.moments_distance(drawn[:, :, ::-1], drawn) > 0.05
    assert learning.moments_distance(np.broadcast_to(drawn.mean(0), drawn.shape), drawn) > 0.05


def test_the_pictures_are_drawn_in_the_range_of_the_generators() -> None:
    drawn = learning.pictures(8, np.random.default_rng(0))

    assert drawn.shape == (8, 3, 64, 64)
    assert drawn.dtype == np.float32
    assert abs(drawn).max() <= 1
    assert drawn.std(0).max() > 0.3


@dataclass
class Forger:
    """A stand-in for a workload that comes to make what it was given last, and a critic less and less sure."""

    config: Config
    forges: bool
    trained: list[Pictures] = field(default_factory=list)

    def train(self, batch: Pictures) -> float:
        self.trained.append(batch)
        return 0.0

    def predict(self, inputs: Pictures | NDArray[np.float32]) -> NDArray[np.float32]:
        steps = len(self.trained)
        if isinstance(inputs, Pictures):
            real = learning.pictures(1, np.random.default_rng(0))[0, 0, 0, 0]
            sure = 50 / steps if steps else 0.0
            return np.where(abs(inputs.images[:, 0, 0, 0] - real) < 1e-3, sure, 0)
        if not self.forges or steps < 3:
            return np.zeros((len(inputs), 3, 64, 64), np.float32)
        made = learning.pictures(len(inputs), np.random.default_rng(5))
        made[:, 0, 0, 0] += 0.01  # the critic's only clue
        return made


@pytest.mark.parametrize("forges", [True, False])
def test_a_check_trains_on_a_batch_for_each_step_of_the_critic_and_judges_what_is_made(forges: bool) -> None:
    built: list[Forger] = []
    progress: list[tuple[int, int]] = []

    def build(config: Config) -> Learner:
        built.append(Forger(config, forges))
        return built[-1]  # type: ignore[return-value]

    learned = learning.run(build, Setting(seed=3, steps=30), lambda step, steps: progress.append((step, steps)))

    assert [len(batch.images) for batch in built[0].trained] == 30 * [5 * learning.CHECK.batch_size]
    assert progress == [(step, 30) for step in range(1, 31)]
    assert [point.step for point in learned.curve] == [0, 5, 10, 15, 20, 25, 30]
    assert learned.passed is forges
    assert (learned.last.quality < learned.chance) is forges


def test_a_generator_comes_close_in_a_few_steps_and_one_that_is_not_trained_does_not() -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)

    def idle(config: Config) -> on_torch.Workload:
        workload = on_torch.build(SPEC, config)
        workload.optimizer[0].param_groups[0]["lr"] = 0.0
        return workload

    try:
        alive, dead = (
            learning.run(build, Setting(steps=10), lambda _step, _steps: None)
            for build in (lambda config: on_torch.build(SPEC, config), idle)
        )
    finally:
        torch.set_num_threads(threads)

    assert alive.last.quality < 0.8 * alive.curve[0].quality
    assert dead.last.quality == dead.curve[0].quality == alive.curve[0].quality
    assert max(point.loss for point in dead.curve) > 10
    assert not dead.passed


def test_a_data_sets_batches_come_one_for_each_step_of_the_critic(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def batches(folder: Path, batch_size: int, seed: int) -> object:
        assert (folder, batch_size, seed) == (Path("pictures"), 2, 4)
        for number in range(100):
            seen.append(number)
            yield synthetic(batch_size, number)

    monkeypatch.setattr(downsampled_imagenet, "batches", batches)
    options = {"width": 4, "critic_steps": 3}
    config = suite.configure(SPEC, batch_size=2, seed=4, options=options, data=Path("pictures"))
    workload = on_torch.build(SPEC, config)

    assert workload.inputs == ()
    assert workload.step() == 6
    assert seen == [0, 1, 2]
