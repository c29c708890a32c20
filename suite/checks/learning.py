"""What it takes to say that a model learns: what it reached on held-out data, and what guessing would have.

Source: the training curves of seed 003, figure 2, in small.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tbdprof import suite
from tbdprof.suite.workload import Config, Learner, Spec

Build = Callable[[Config], Learner]
Told = Callable[[int, int], None]  # a step, of how many


@dataclass(frozen=True, slots=True)
class Point:
    """The held-out figures after some steps."""

    step: int
    seconds: float  # of training alone
    loss: float
    quality: float


@dataclass(frozen=True, slots=True)
class Learned:
    """What a model reached on held-out data, beside what knowing only the frequencies would."""

    measure: str  # the quality measure of the field: top-1, mAP, critic's distance
    chance: float  # of `quality`
    frequency_loss: float | None  # of predicting each class by its frequency, None where the loss has no such meaning
    curve: tuple[Point, ...]  # the first before training, the last after it
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
    """How a model shows that it learns: `run` builds it at a size it likes, trains it and judges it."""

    run: Callable[[Build, "Setting", Told], Learned]
    options: Mapping[str, str | int]  # of the model, at which it is checked
    batch_size: int
    steps: int


@dataclass(frozen=True, slots=True)
class Setting:
    """What may be asked of a check."""

    device: str = "cpu"
    precision: str = "fp32"
    seed: int = 0
    steps: int | None = None  # None: the check's own number


def configured(spec: Spec, check: Check, setting: Setting) -> Config:
    """Return the configuration at which a model is checked. Raises UsageError."""
    return suite.configure(
        spec,
        batch_size=check.batch_size,
        device=setting.device,
        precision=setting.precision,
        seed=setting.seed,
        options=check.options,
    )
