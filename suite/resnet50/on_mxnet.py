"""ResNet-50 in MXNet's Gluon."""

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
from tbdprof.suite.inputs import ImageBatch, feed
from tbdprof.suite.on_mxnet import context_of
from tbdprof.suite.resnet50 import (
    CLASSES,
    MOMENTUM,
    NORM_EPSILON,
    NORM_MOMENTUM,
    WEIGHT_DECAY,
    initial,
    learning_rate,
)
from tbdprof.suite.resnet50.architecture import EXPANSION, FEATURES, STAGES, STEM_WIDTH, Stage, check, strides
from tbdprof.suite.workload import Config, Spec

DTYPES = {"fp32": "float32", "fp64": "float64"}

Batch = tuple[mx.nd.NDArray, mx.nd.NDArray]  # images, labels


class Bottleneck(nn.HybridBlock):  # type: ignore[misc]
    """A 1×1, a 3×3 and a 1×1 convolution around which a shortcut leads."""

    def __init__(self, inputs: int, width: int, stride: int, variant: str, **names: Any) -> None:
        super().__init__(**names)
        outputs = EXPANSION * width
        first, second = strides(variant, stride)
        with self.name_scope():
            self.conv1 = convolution(inputs, width, 1, first)
            self.bn1 = normalization(width)
            self.conv2 = convolution(width, width, 3, second)
            self.bn2 = normalization(width)
            self.conv3 = convolution(width, outputs, 1)
            self.bn3 = normalization(outputs)
            self.relu = nn.Activation("relu")
            self.downsample = None
            if inputs != outputs:
                self.downsample = nn.HybridSequential(prefix="downsample_")
                with self.downsample.name_scope():
                    self.downsample.add(convolution(inputs, outputs, 1, stride), normalization(outputs))

    def hybrid_forward(self, F: Any, x: Any) -> Any:  # noqa: N803
        """Return the block's output maps."""
        shortcut = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        x = self.bn3(self.conv3(x))
        return self.relu(x + shortcut)


class ResNet50(nn.HybridBlock):  # type: ignore[misc]
    """Images (batch, 3, side, side) to scores of the classes (batch, 1000)."""

    def __init__(self, variant: str = "v1.5", **names: Any) -> None:
        super().__init__(**names)
        with self.name_scope():
            self.conv1 = convolution(3, STEM_WIDTH, 7, 2)
            self.bn1 = normalization(STEM_WIDTH)
            self.relu = nn.Activation("relu")
            self.maxpool = nn.MaxPool2D(3, strides=2, padding=1)
            self.layer1 = blocks(STEM_WIDTH, STAGES[0], variant, prefix="layer1_")
            self.layer2 = blocks(EXPANSION * STAGES[0].width, STAGES[1], variant, prefix="layer2_")
            self.layer3 = blocks(EXPANSION * STAGES[1].width, STAGES[2], variant, prefix="layer3_")
            self.layer4 = blocks(EXPANSION * STAGES[2].width, STAGES[3], variant, prefix="layer4_")
            self.avgpool = nn.GlobalAvgPool2D()
            self.fc = nn.Dense(CLASSES, in_units=FEATURES)  # flattens what it is given

    def hybrid_forward(self, F: Any, images: Any) -> Any:  # noqa: N803
        """Return the scores, before any softmax."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x))


def convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2D:
    """Return a convolution without bias that pads by half its kernel."""
    return nn.Conv2D(outputs, kernel, stride, padding=kernel // 2, use_bias=False, in_channels=inputs)


def normalization(channels: int) -> nn.BatchNorm:
    """Return a batch normalization with the suite's constants; MXNet's momentum is the share of the old."""
    return nn.BatchNorm(epsilon=NORM_EPSILON, momentum=1 - NORM_MOMENTUM, in_channels=channels)


def blocks(inputs: int, stage: Stage, variant: str, prefix: str) -> nn.HybridSequential:
    """Return a stage's blocks; the first has its stride and widens."""
    stack = nn.HybridSequential(prefix=prefix)
    with stack.name_scope():
        stack.add(Bottleneck(inputs, stage.width, stage.stride, variant))
        for _ in range(stage.blocks - 1):
            stack.add(Bottleneck(EXPANSION * stage.width, stage.width, 1, variant))
    return stack


@dataclass(frozen=True, slots=True)
class Workload:
    """ResNet-50 and the batches it is trained on."""

    spec: Spec
    config: Config
    model: ResNet50
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
        """Train on a batch once; return its mean cross entropy."""
        return float(self.update(*on_device(batch, self.config)).asscalar())

    def predict(self, images: NDArray[np.float32]) -> Scores:
        """Return the scores of images, with the running statistics."""
        scores: Scores = self.model(as_array(images, self.config)).asnumpy()
        return scores

    def update(self, images: mx.nd.NDArray, labels: mx.nd.NDArray) -> mx.nd.NDArray:
        """Train on a batch once; return its mean cross entropy before that."""
        with autograd.record():
            loss = self.loss(images, labels)
        loss.backward()
        self.optimizer.step(1)  # the loss is a mean already
        return loss

    def loss(self, images: mx.nd.NDArray, labels: mx.nd.NDArray) -> mx.nd.NDArray:
        """Return a batch's mean cross entropy."""
        return self.cross_entropy(self.model(images), labels).mean()


def build(spec: Spec, config: Config) -> Workload:
    """Return ResNet-50 with its initial weights, its optimizer and its batches on the device."""
    check(config)
    if config.precision not in DTYPES:
        raise UsageError(
            f"{spec.name} in MXNet runs in {' or '.join(DTYPES)}: {config.precision} needs --framework torch"
        )
    model = ResNet50(str(config.options["variant"]))
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


def initialize(model: ResNet50, seed: int) -> None:
    """Give a model, whose other parameters have their first values, the weights drawn from a seed."""
    parameters = model._collect_params_with_prefix()  # noqa: SLF001 - the only way to structural names
    for name, values in initial.weights(seed):
        parameters[name].set_data(mx.nd.array(values))
