"""Inception-v3 in PyTorch."""

from collections import OrderedDict

import torch
from torch import Tensor, nn
from torch.nn import functional

from tbdprof.suite.classifier import CLASSES, NORM_EPSILON, NORM_MOMENTUM
from tbdprof.suite.classifier.initial import weights
from tbdprof.suite.classifier.on_torch import Workload, workload
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
from tbdprof.suite.workload import Config, Spec


class Convolution(nn.Module):
    """A convolution without bias, batch normalization and ReLU."""

    def __init__(self, inputs: int, step: Step) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, step.outputs, step.kernel, step.stride, step.padding, bias=False)
        self.norm = nn.BatchNorm2d(step.outputs, eps=NORM_EPSILON, momentum=NORM_MOMENTUM)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's output."""
        maps: Tensor = self.relu(self.norm(self.conv(x)))
        return maps


class Inception(nn.Module):
    """Several branches with the same input; their outputs are joined over the channels."""

    def __init__(self, inputs: int, branches: Branches) -> None:
        super().__init__()
        for name, steps in branches.chains.items():
            self.add_module(name, chain(inputs, steps))

    def forward(self, x: Tensor) -> Tensor:
        """Return the joined outputs of the branches."""
        return torch.cat([branch(x) for branch in self.children()], 1)


class InceptionV3(nn.Module):
    """Turns images (batch, 3, side, side) into scores of the classes (batch, 1000), and the auxiliary scores."""

    def __init__(self, dropout: float = DROPOUT) -> None:
        super().__init__()
        self.stem = chain(CHANNELS, STEM)
        self.lower = chain(STEM_WIDTH, LOWER)
        self.upper = chain(LOWER_WIDTH, UPPER)
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(UPPER_WIDTH, CLASSES)
        self.auxiliary = chain(LOWER_WIDTH, AUXILIARY)
        self.auxiliary_fc = nn.Linear(AUXILIARY_WIDTH, CLASSES)
        self.avgpool = nn.AdaptiveAvgPool2d(1)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return the scores and the auxiliary scores, before any softmax."""
        maps = self.lower(self.stem(images))
        features = self.avgpool(self.upper(maps)).flatten(1)
        auxiliary = self.avgpool(self.auxiliary(maps)).flatten(1)
        return self.fc(self.dropout(features)), self.auxiliary_fc(auxiliary)


def chain(inputs: int, steps: Chain) -> nn.Sequential:
    """Return the modules of a chain, to be applied one after the other."""
    modules: OrderedDict[str, nn.Module] = OrderedDict()
    for name, step in steps.items():
        modules[name] = module(inputs, step)
        inputs = outputs(inputs, {name: step})
    return nn.Sequential(modules)


def module(inputs: int, element: Element) -> nn.Module:
    """Return the module for an element of a chain."""
    if isinstance(element, Branches):
        return Inception(inputs, element)
    if isinstance(element, Step):
        return Convolution(inputs, element)
    if element.kind == "max":
        return nn.MaxPool2d(element.size, element.stride, element.padding)
    return nn.AvgPool2d(element.size, element.stride, element.padding, count_include_pad=False)


def build(spec: Spec, config: Config) -> Workload:
    """Return Inception-v3 with its initial weights, its optimizer and its batches on the device."""
    check(config)
    torch.manual_seed(config.seed)  # dropout draws from torch's own generator
    model = InceptionV3(DROPOUT if config.options["dropout"] == "on" else 0.0)
    return workload(spec, config, model, weights(layers(), config.seed), loss, (Inception, Convolution))


def loss(both: tuple[Tensor, Tensor], labels: Tensor) -> Tensor:
    """Return a batch's mean cross entropy, plus the auxiliary classifier's times its weight."""
    scores, auxiliary = both
    own = functional.cross_entropy(scores, labels)
    return own + AUXILIARY_WEIGHT * functional.cross_entropy(auxiliary, labels)
