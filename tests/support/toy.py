"""A model of the suite that is one folder, outside of the package, and needs no framework."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tbdprof import suite

FACTS = """
from tbdprof.suite.workload import Option, Spec

SPEC = Spec(
    name="toy", title="Toy", task="none", dataset="none", unit="samples", sample_unit="samples", layers="1",
    dominant_layer="dense", parameters=6, default_batch={"cpu": 3, "cuda": 5}, optimizer="none",
    options=(Option("kind", "plain", "which kind", ("plain", "fancy")), Option("width", 8, "how wide")),
    fixed_bytes=1000, sample_bytes=lambda options: 2 + options["width"],
)
"""
LEAF = """
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tbdprof.suite.data import imagenet
from tbdprof.suite.data.inputs import feed, image_batch
from tbdprof.suite.workload import Config, Spec


@dataclass
class Workload:
    config: Config
    batches: Iterator[Any]
    weight: Any = field(default_factory=lambda: np.zeros(2))
    model: object = None
    optimizer: object = None
    inputs: object = None

    def step(self) -> float:
        next(self.batches)
        return self.config.batch_size

    def train(self, batch):
        points, labels = batch
        guess = self.predict(points)
        self.weight -= points.T @ (guess - labels) / len(labels)
        return float(-np.log(np.where(labels, guess, 1 - guess)).mean())

    def predict(self, points):
        return 1 / (1 + np.exp(-points @ self.weight))


def build(spec: Spec, config: Config) -> Workload:
    if config.data is None:
        drawn = iter([image_batch(config.batch_size, 8, 10, config.seed)])
    else:
        drawn = imagenet.batches(config.data, config.batch_size, 8, 10, config.seed)
    return Workload(config, feed(drawn, lambda batch: batch.images, kept=config.data is None))
"""
LEARNING = """
import numpy as np

from tbdprof.suite.checks.learning import Check, Learned, Point
from tbdprof.suite.workload import Config

SIGN = 1  # of the held-out labels


def run(build, setting, progress):
    draw = np.random.default_rng(setting.seed)
    points = draw.normal(size=(200, 2))
    labels = (points.sum(axis=1) > 0).astype(float)
    learner, curve = build(Config(100, device=setting.device, seed=setting.seed)), []
    steps = setting.steps or 20

    def judge(step):
        guess = np.clip(learner.predict(SIGN * points[100:]), 1e-9, 1 - 1e-9)
        right = labels[100:] > 0.5
        loss = float(-np.log(np.where(right, guess, 1 - guess)).mean())
        curve.append(Point(step, step / 10, loss, float(((guess > 0.5) == right).mean())))

    judge(0)
    for step in range(steps):
        progress(step, steps)
        learner.train((points[:100], labels[:100]))
    judge(steps)
    passed = curve[-1].quality > 0.8
    return Learned("top-1", 0.5, 0.693, tuple(curve), "points by their side of a line", passed, "top-1 above 0.8")


CHECK = Check(run, {}, 100, 20)
"""


@contextmanager
def toy(folder: Path, monkeypatch: pytest.MonkeyPatch, **files: str) -> Iterator[None]:
    """Add the model to the suite, with files of its own in place of these or beside them."""
    texts = {"__init__": FACTS, "on_torch": LEAF, "on_torch_layers": "", "shapes": "", "learning": LEARNING, **files}
    (folder / "toy").mkdir(parents=True)
    for name, text in texts.items():
        (folder / "toy" / f"{name}.py").write_text(text)
    monkeypatch.setattr(suite, "__path__", [*suite.__path__, str(folder)])
    try:
        yield
    finally:
        for name in [name for name in sys.modules if name.startswith("tbdprof.suite.toy")]:
            del sys.modules[name]
        vars(suite).pop("toy", None)
