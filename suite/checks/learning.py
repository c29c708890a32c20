"""The evidence that a model learns: what it reaches on held-out data, compared with what guessing would reach.

Source: the training curves in figure 2 of the TBD paper (Zhu et al., 2018, arXiv:1803.06905), on a small scale.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tbdprof import suite
from tbdprof.suite.workload import Config, Learner, Spec

Build = Callable[[Config], Learner]
Progress = Callable[[int, int], None]  # reports progress: a step, and the number of steps


@dataclass(frozen=True, slots=True)
class Point:
    """The held-out figures after some steps."""

    step: int
    seconds: float  # of training alone
    loss: float
    quality: float


@dataclass(frozen=True, slots=True)
class Learned:
    """What a model reached on held-out data, and what a guess from the frequencies alone would reach."""

    measure: str  # the field's quality measure: top-1, mAP, critic's distance
    chance: float  # the `quality` that guessing reaches
    frequency_loss: float | None  # of predicting each class with its frequency; None if the loss is not a cross entropy
    curve: tuple[Point, ...]  # the first point is before training, the last after it
    data: str  # one sentence: what it was trained on
    passed: bool
    rule: str  # one sentence: what had to hold

    @property
    def last(self) -> Point:
        """The figures at the end."""
        return self.curve[-1]


@dataclass(frozen=True, slots=True)
class Checked:
    """What a model learned in one framework, and where."""

    model: str
    framework: str
    framework_version: str
    device: str
    threads: int
    seed: int
    learned: Learned


@dataclass(frozen=True, slots=True)
class Check:
    """The learning check of a model: `run` builds the model at a size of its choice, trains it and judges it."""

    run: Callable[[Build, "Setting", Progress], Learned]
    options: Mapping[str, str | int]  # the model's options during the check
    batch_size: int
    steps: int
    # The batches of a run, as `Learner.train` takes them; None: the model has no loss of a single step.
    batches: Callable[[Config], Iterator[Any]] | None = None


@dataclass(frozen=True, slots=True)
class Setting:
    """The settings of a check."""

    device: str = "cpu"
    precision: str = "fp32"
    seed: int = 0
    steps: int | None = None  # if None, the check's own number


def configured(spec: Spec, check: Check, setting: Setting) -> Config:
    """Return the configuration in which a model is checked. Raises UsageError."""
    return suite.configure(
        spec,
        batch_size=check.batch_size,
        device=setting.device,
        precision=setting.precision,
        seed=setting.seed,
        options=check.options,
    )
