"""Whether a classifier learns is judged on images it has not seen, against what guessing would reach."""

from dataclasses import dataclass, field
from math import log

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from tbdprof.suite.checks.classification import (
    frequency_loss,
    gratings,
    learn,
    mean_cross_entropy,
    top_1_beyond_chance,
)
from tbdprof.suite.checks.learning import Check, Learned, Setting
from tbdprof.suite.classifier.batches import Scores
from tbdprof.suite.data.inputs import ImageBatch
from tbdprof.suite.workload import Config

LABELS = np.arange(10)


def test_gratings_are_the_seeds_alone() -> None:
    first, again, other = (gratings(LABELS, 16, seed) for seed in (3, 3, 4))

    assert (first.images.shape, first.images.dtype) == ((10, 3, 16, 16), np.float32)
    assert first.images.tobytes() == again.images.tobytes()
    assert first.images.tobytes() != other.images.tobytes()


def test_the_direction_of_the_stripes_shows_the_class() -> None:
    batch = gratings(LABELS, 48, 0)

    assert [directed(image) for image in batch.images] == LABELS.tolist()


def test_the_color_shows_the_class() -> None:
    means = gratings(LABELS, 48, 0).images.mean(axis=(2, 3))
    hues = np.arctan2(means[:, 1] - means[:, 2], (2 * means[:, 0] - means[:, 1] - means[:, 2]) / np.sqrt(3))

    assert (np.round(hues / (np.pi / 5)) % 10).tolist() == LABELS.tolist()


def directed(image: NDArray[np.float32]) -> int:
    """Return the class whose direction the strongest wave of an image has."""
    power = np.abs(np.fft.fft2(image.mean(axis=0), s=(160, 160)))[:, :80]
    power[0, 0] = 0
    row, column = np.unravel_index(power.argmax(), power.shape)
    angle = np.arctan2((row + 80) % 160 - 80, column) % np.pi
    return round(angle / (np.pi / 10)) % 10


def test_the_loss_of_the_frequencies_is_their_entropy() -> None:
    assert frequency_loss(np.repeat(LABELS, 3)) == pytest.approx(log(10))
    assert frequency_loss(np.array([0, 0, 0, 1])) == pytest.approx(-(0.75 * log(0.75) + 0.25 * log(0.25)))


def test_the_cross_entropy_is_that_of_the_definition_however_large_the_scores() -> None:
    scores = np.array([[1000.0, 1000.0 + log(3)], [0.0, 0.0]])

    assert mean_cross_entropy(scores, np.array([1, 0])) == pytest.approx((log(4 / 3) + log(2)) / 2)


def test_what_is_beyond_chance_is_the_binomials_tail() -> None:
    assert top_1_beyond_chance(4, 0.03) == 4  # 0.03⁴ is 8.1e-7, and three or four right have 1.06e-4
    assert top_1_beyond_chance(4, 0.04) == 5  # 2.56e-6: more than all would have to be right
    assert top_1_beyond_chance(40, 0.1) == 16


@dataclass
class Sure:
    """Knows the class of what it was trained on, as well as it is told to; counts its steps."""

    known: float
    spoken: float = 5.0
    model: object = None
    optimizer: object = None
    inputs: object = None
    steps: int = 0
    predicted: list[int] = field(default_factory=list)

    def step(self) -> float:
        raise AssertionError

    def train(self, batch: ImageBatch) -> float:
        self.steps += 1
        return 0.0

    def predict(self, images: NDArray[np.float32]) -> Scores:
        self.predicted.append(len(images))
        classes = [directed(image) for image in images]
        right = np.random.default_rng(len(self.predicted)).random(len(images)) < self.known * (self.steps > 0)
        scores = np.full((len(images), 1000), -20.0)
        scores[:, :10] = 0.0
        scores[np.arange(len(images)), np.where(right, classes, 0)] = self.spoken
        return scores


def learned(learner: Sure, steps: int | None = None) -> Learned:
    check = Check(lambda *_: pytest.fail("not this one"), options={"image_size": 48}, batch_size=16, steps=8)
    asked: list[Config] = []

    def build(config: Config) -> Sure:
        asked.append(config)
        return learner

    found = learn(check, build, Setting(seed=2, steps=steps), lambda *_: None, rate_of=4)
    assert asked == [Config(4, seed=2, options={"image_size": 48})]
    return found


def test_a_network_that_knows_most_classes_passes() -> None:
    learner = Sure(known=0.9)
    found = learned(learner)

    assert found.passed
    assert found.frequency_loss == pytest.approx(log(10))
    assert found.chance == 0.1
    assert [point.step for point in found.curve] == [0, 2, 4, 6, 8]
    assert found.curve[0].quality == 0.1
    assert found.last.quality > 0.8
    assert learner.predicted[:3] == [16, 16, 8]


def test_as_many_steps_are_taken_as_are_asked_for() -> None:
    learner = Sure(known=0.9)
    found = learned(learner, steps=3)

    assert learner.steps == 3
    assert [point.step for point in found.curve] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "learner",
    [Sure(known=0.0), Sure(known=0.15), Sure(known=0.9, spoken=500.0), Sure(known=0.9, spoken=float("nan"))],
    ids=["knows nothing", "is hardly better than chance", "is sure of its mistakes", "says no number"],
)
def test_a_network_that_learned_nothing_fails(learner: Sure) -> None:
    assert not learned(learner).passed


class Small:
    """A small convolutional network in torch."""

    def __init__(self, rate: float) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(
            nn.Conv2d(3, 16, 7, 2),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(16, 10),
        )
        self.optimizer = torch.optim.SGD(self.model.parameters(), rate, 0.9)
        self.inputs = None

    def step(self) -> float:
        raise AssertionError

    def train(self, batch: ImageBatch) -> float:
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(torch.tensor(batch.images)), torch.tensor(batch.labels))
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def predict(self, images: NDArray[np.float32]) -> Scores:
        self.model.eval()
        with torch.no_grad():
            scores = self.model(torch.tensor(images)).numpy()
        self.model.train()
        return scores


@pytest.mark.parametrize(("rate", "passes"), [(0.1, True), (0.0, False)])
def test_a_network_passes_that_is_trained_and_not_one_whose_learning_rate_is_zero(rate: float, passes: bool) -> None:
    check = Check(lambda *_: pytest.fail("not this one"), options={"image_size": 32}, batch_size=16, steps=40)

    assert learn(check, lambda _: Small(rate), Setting(), lambda *_: None, rate_of=16).passed == passes
