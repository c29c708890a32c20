"""Inception-v3 in MXNet's Gluon."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.gluon import nn
from numpy.typing import NDArray

from tbdprof.errors import UsageError
from tbdprof.suite.classification import Scores, batches
from tbdprof.suite.inception_v3 import (
    AUXILIARY_WEIGHT,
    DROPOUT,
    MOMENTUM,
    NORM_EPSILON,
    NORM_MOMENTUM,
    WEIGHT_DECAY,
    initial,
    learning_rate,
)
from tbdprof.suite.inception_v3.architecture import (
    AUXILIARY,
    AUXILIARY_WIDTH,
    CHANNELS,
    CLASSES,
    LOWER,
    LOWER_WIDTH,
    STEM,
    STEM_WIDTH,
    UPPER,
    UPPER_WIDTH,
    Branches,
    Chain,
    Element,
    Step,
    check,
    outputs,
)
from tbdprof.suite.inputs import ImageBatch, feed
from tbdprof.suite.on_mxnet import context_of
from tbdprof.suite.workload import Config, Spec

DTYPES = {"fp32": "float32", "fp64": "float64"}

Batch = tuple[mx.nd.NDArray, mx.nd.NDArray]  # images, labels


class Convolution(nn.HybridBlock):  # type: ignore[misc]
    """A convolution without bias, batch normalization and ReLU."""

    def __init__(self, inputs: int, step: Step, **names: Any) -> None:
        super().__init__(**names)
        with self.name_scope():
            self.conv = nn.Conv2D(
                step.outputs, step.kernel, step.stride, step.padding, use_bias=False, in_channels=inputs
            )
            # MXNet's momentum is the share of the old.
            self.norm = nn.BatchNorm(epsilon=NORM_EPSILON, momentum=1 - NORM_MOMENTUM, in_channels=step.outputs)
            self.relu = nn.Activation("relu")

    def hybrid_forward(self, F: Any, x: Any) -> Any:  # noqa: N803
        """Return the step's output maps."""
        return self.relu(self.norm(self.conv(x)))


class Inception(nn.HybridBlock):  # type: ignore[misc]
    """Branches side by side, joined over the channels."""

    def __init__(self, inputs: int, branches: Branches, **names: Any) -> None:
        super().__init__(**names)
        with self.name_scope():
            for name, steps in branches.chains.items():
                self.register_child(chain(inputs, steps, f"{name}_"), name)

    def hybrid_forward(self, F: Any, x: Any) -> Any:  # noqa: N803
        """Return the joined maps."""
        return F.concat(*(branch(x) for branch in self._children.values()), dim=1)


class InceptionV3(nn.HybridBlock):  # type: ignore[misc]
    """Images (batch, 3, side, side) to scores of the classes (batch, 1000), and the auxiliary classifier's."""

    def __init__(self, dropout: float = DROPOUT, **names: Any) -> None:
        super().__init__(**names)
        with self.name_scope():
            self.stem = chain(CHANNELS, STEM, "stem_")
            self.lower = chain(STEM_WIDTH, LOWER, "lower_")
            self.upper = chain(LOWER_WIDTH, UPPER, "upper_")
            self.dropout = nn.Dropout(dropout)
            self.fc = nn.Dense(CLASSES, in_units=UPPER_WIDTH, prefix="fc_")  # flattens what it is given
            self.auxiliary = chain(LOWER_WIDTH, AUXILIARY, "auxiliary_")
            self.auxiliary_fc = nn.Dense(CLASSES, in_units=AUXILIARY_WIDTH, prefix="auxiliary_fc_")
            self.avgpool = nn.GlobalAvgPool2D()

    def hybrid_forward(self, F: Any, images: Any) -> tuple[Any, Any]:  # noqa: N803
        """Return the scores and the auxiliary scores, before any softmax."""
        maps = self.lower(self.stem(images))
        features = self.avgpool(self.upper(maps))
        auxiliary = self.avgpool(self.auxiliary(maps))
        return self.fc(self.dropout(features)), self.auxiliary_fc(auxiliary)


def chain(inputs: int, steps: Chain, prefix: str) -> nn.HybridSequential:
    """Return blocks one after the other."""
    sequence = nn.HybridSequential(prefix=prefix)
    with sequence.name_scope():
        for name, step in steps.items():
            sequence.register_child(block(inputs, step, f"{name}_"), name)
            inputs = outputs(inputs, {name: step})
    return sequence


def block(inputs: int, element: Element, prefix: str) -> nn.HybridBlock:
    """Return the block for an element of a chain."""
    if isinstance(element, Branches):
        return Inception(inputs, element, prefix=prefix)
    if isinstance(element, Step):
        return Convolution(inputs, element, prefix=prefix)
    if element.kind == "max":
        return nn.MaxPool2D(element.size, element.stride, element.padding, prefix=prefix)
    return nn.AvgPool2D(element.size, element.stride, element.padding, count_include_pad=False, prefix=prefix)


@dataclass(frozen=True, slots=True)
class Workload:
    """Inception-v3 and the batches it is trained on."""

    spec: Spec
    config: Config
    model: InceptionV3
    optimizer: gluon.Trainer
    inputs: tuple[mx.nd.NDArray, ...]  # images and labels, where one batch is kept
    batches: Iterator[Batch]
    cross_entropy: gluon.loss.SoftmaxCrossEntropyLoss

    def step(self) -> float:
        """Train on the next batch once, without waiting for it; return how many images it has."""
        images, labels = next(self.batches)
        self.update(images, labels)
        return self.config.batch_size

    def train(self, batch: ImageBatch) -> float:
        """Train on a batch once; return its loss."""
        return float(self.update(*on_device(batch, self.config)).asscalar())

    def predict(self, images: NDArray[np.float32]) -> Scores:
        """Return the scores of images, with the running statistics and without dropout."""
        found, _ = self.model(as_array(images, self.config))
        scores: Scores = found.asnumpy()
        return scores

    def update(self, images: mx.nd.NDArray, labels: mx.nd.NDArray) -> mx.nd.NDArray:
        """Train on a batch once; return its loss before that."""
        with autograd.record():
            loss = self.loss(images, labels)
        loss.backward()
        self.optimizer.step(1)  # the loss is a mean already
        return loss

    def loss(self, images: mx.nd.NDArray, labels: mx.nd.NDArray) -> mx.nd.NDArray:
        """Return a batch's mean cross entropy and, by its weight, the auxiliary classifier's."""
        scores, auxiliary = self.model(images)
        own = self.cross_entropy(scores, labels).mean()
        return own + AUXILIARY_WEIGHT * self.cross_entropy(auxiliary, labels).mean()


def build(spec: Spec, config: Config) -> Workload:
    """Return Inception-v3 with its initial weights, its optimizer and its batches on the device."""
    check(config)
    if config.precision not in DTYPES:
        raise UsageError(
            f"{spec.name} in MXNet runs in {' or '.join(DTYPES)}: {config.precision} needs --framework torch"
        )
    mx.random.seed(config.seed)  # dropout draws from MXNet's own generator
    model = InceptionV3(DROPOUT if config.options["dropout"] == "on" else 0.0, prefix="inception_v3_")
    model.cast(DTYPES[config.precision])
    model.initialize(mx.init.Zero(), ctx=context_of(config))
    initialize(model, config.seed)
    model.hybridize()
    settings = {"learning_rate": learning_rate(config.batch_size), "momentum": MOMENTUM, "wd": WEIGHT_DECAY}
    trainer = gluon.Trainer(model.collect_params(), "sgd", settings)
    drawn = batches(config, int(config.options["image_size"]), CLASSES)
    fed = feed(drawn, partial(on_device, config=config), kept=config.data is None)
    inputs = next(fed) if config.data is None else ()
    return Workload(spec, config, model, trainer, inputs, fed, gluon.loss.SoftmaxCrossEntropyLoss())


def on_device(batch: ImageBatch, config: Config) -> Batch:
    """Return a batch as MXNet's arrays."""
    return as_array(batch.images, config), as_array(batch.labels, config)


def as_array(values: NDArray[Any], config: Config) -> mx.nd.NDArray:
    """Return images or labels in the model's data type."""
    return mx.nd.array(values, context_of(config), DTYPES[config.precision])


def initialize(model: InceptionV3, seed: int) -> None:
    """Give a model, whose other parameters have their first values, the weights drawn from a seed."""
    parameters = model._collect_params_with_prefix()  # noqa: SLF001 - the only way to structural names
    for name, values in initial.weights(seed):
        parameters[name].set_data(mx.nd.array(values))
