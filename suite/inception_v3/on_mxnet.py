"""Inception-v3 in MXNet's Gluon."""

from functools import partial
from typing import Any

import mxnet as mx
from mxnet.gluon import nn

from tbdprof.suite.classifier import CLASSES, NORM_EPSILON, NORM_MOMENTUM
from tbdprof.suite.classifier.initial import weights
from tbdprof.suite.classifier.on_mxnet import Loss, Workload, mean_cross_entropy, workload
from tbdprof.suite.inception_v3 import AUXILIARY_WEIGHT, DROPOUT
from tbdprof.suite.inception_v3.architecture import (
    AUXILIARY,
    AUXILIARY_WIDTH,
    CHANNELS,
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
    layers,
    outputs,
)
from tbdprof.suite.on_mxnet import check_precision
from tbdprof.suite.workload import Config, Spec


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
        """Return the layer's output."""
        return self.relu(self.norm(self.conv(x)))


class Inception(nn.HybridBlock):  # type: ignore[misc]
    """Several branches with the same input; their outputs are joined over the channels."""

    def __init__(self, inputs: int, branches: Branches, **names: Any) -> None:
        super().__init__(**names)
        with self.name_scope():
            for name, steps in branches.chains.items():
                self.register_child(chain(inputs, steps, f"{name}_"), name)

    def hybrid_forward(self, F: Any, x: Any) -> Any:  # noqa: N803
        """Return the joined outputs of the branches."""
        return F.concat(*(branch(x) for branch in self._children.values()), dim=1)


class InceptionV3(nn.HybridBlock):  # type: ignore[misc]
    """Turns images (batch, 3, side, side) into scores of the classes (batch, 1000), and the auxiliary scores."""

    def __init__(self, dropout: float = DROPOUT, **names: Any) -> None:
        super().__init__(**names)
        with self.name_scope():
            self.stem = chain(CHANNELS, STEM, "stem_")
            self.lower = chain(STEM_WIDTH, LOWER, "lower_")
            self.upper = chain(LOWER_WIDTH, UPPER, "upper_")
            self.dropout = nn.Dropout(dropout)
            self.fc = nn.Dense(CLASSES, in_units=UPPER_WIDTH, prefix="fc_")  # flattens its input
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
    """Return the blocks of a chain, to be applied one after the other."""
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


def build(spec: Spec, config: Config) -> Workload:
    """Return Inception-v3 with its initial weights, its optimizer and its batches on the device."""
    check(config)
    check_precision(spec, config)
    mx.random.seed(config.seed)  # dropout draws from MXNet's own generator
    model = InceptionV3(DROPOUT if config.options["dropout"] == "on" else 0.0, prefix="inception_v3_")
    return workload(spec, config, model, weights(layers(), config.seed), partial(loss, mean_cross_entropy()))


def loss(cross_entropy: Loss, both: tuple[mx.nd.NDArray, mx.nd.NDArray], labels: mx.nd.NDArray) -> mx.nd.NDArray:
    """Return a batch's mean cross entropy, plus the auxiliary classifier's times its weight."""
    scores, auxiliary = both
    own = cross_entropy(scores, labels)
    return own + AUXILIARY_WEIGHT * cross_entropy(auxiliary, labels)
