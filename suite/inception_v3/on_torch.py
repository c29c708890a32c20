"""Inception-v3 in PyTorch."""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

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
from tbdprof.suite.on_torch import device_of, dtype_of
from tbdprof.suite.workload import Config, Spec

Batch = tuple[Tensor, Tensor]  # images, labels


class Convolution(nn.Module):
    """A convolution without bias, batch normalization and ReLU."""

    def __init__(self, inputs: int, step: Step) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, step.outputs, step.kernel, step.stride, step.padding, bias=False)
        self.norm = nn.BatchNorm2d(step.outputs, eps=NORM_EPSILON, momentum=NORM_MOMENTUM)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        """Return the step's output maps."""
        maps: Tensor = self.relu(self.norm(self.conv(x)))
        return maps


class Inception(nn.Module):
    """Branches side by side, joined over the channels."""

    def __init__(self, inputs: int, branches: Branches) -> None:
        super().__init__()
        for name, steps in branches.chains.items():
            self.add_module(name, chain(inputs, steps))

    def forward(self, x: Tensor) -> Tensor:
        """Return the joined maps."""
        return torch.cat([branch(x) for branch in self.children()], 1)


class InceptionV3(nn.Module):
    """Images (batch, 3, side, side) to scores of the classes (batch, 1000), and the auxiliary classifier's."""

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
    """Return modules one after the other."""
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


@dataclass(frozen=True, slots=True)
class Workload:
    """Inception-v3 and the batches it is trained on."""

    spec: Spec
    config: Config
    model: InceptionV3
    optimizer: torch.optim.SGD
    inputs: tuple[Tensor, ...]  # images and labels, where one batch is kept
    batches: Iterator[Batch]

    def step(self) -> float:
        """Train on the next batch once; return how many images it has."""
        images, labels = next(self.batches)
        self.update(images, labels)
        return self.config.batch_size

    def train(self, batch: ImageBatch) -> float:
        """Train on a batch once; return its loss."""
        return self.update(*on_device(batch, self.config)).item()

    def predict(self, images: NDArray[np.float32]) -> Scores:
        """Return the scores of images, with the running statistics and without dropout."""
        self.model.eval()
        with torch.no_grad(), self.autocast():
            scores, _ = self.model(as_tensor(images, self.config))
        self.model.train()
        return at_least_float32(scores).cpu().numpy()

    def update(self, images: Tensor, labels: Tensor) -> Tensor:
        """Train on a batch once; return its loss before that."""
        self.optimizer.zero_grad()
        loss = self.loss(images, labels)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return loss.detach()

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """Return a batch's mean cross entropy and, by its weight, the auxiliary classifier's."""
        with self.autocast():
            scores, auxiliary = self.model(images)
            own = functional.cross_entropy(scores, labels)
            return own + AUXILIARY_WEIGHT * functional.cross_entropy(auxiliary, labels)

    def autocast(self) -> torch.autocast:
        """Return the context in which a run in bf16 computes in it."""
        kind = device_of(self.config).type
        return torch.autocast(kind, torch.bfloat16, enabled=self.config.precision == "bf16")


def build(spec: Spec, config: Config) -> Workload:
    """Return Inception-v3 with its initial weights, its optimizer and its batches on the device."""
    check(config)
    torch.manual_seed(config.seed)  # dropout draws from torch's own generator
    model = InceptionV3(DROPOUT if config.options["dropout"] == "on" else 0.0)
    initialize(model, config.seed)
    model.to(device_of(config), dtype_of(config))
    optimizer = torch.optim.SGD(
        model.parameters(), lr=learning_rate(config.batch_size), momentum=MOMENTUM, weight_decay=WEIGHT_DECAY
    )
    drawn = batches(config, int(config.options["image_size"]), CLASSES)
    fed = feed(drawn, partial(on_device, config=config), kept=config.data is None)
    inputs = next(fed) if config.data is None else ()
    return Workload(spec, config, model, optimizer, inputs, fed)


def on_device(batch: ImageBatch, config: Config) -> Batch:
    """Return a batch as tensors, copied into memory that is torch's own."""
    return as_tensor(batch.images, config), torch.tensor(batch.labels, device=device_of(config))


def as_tensor(images: NDArray[np.float32], config: Config) -> Tensor:
    """Return images in the model's data type."""
    return torch.tensor(images, dtype=dtype_of(config), device=device_of(config))


def at_least_float32(scores: Tensor) -> Tensor:
    """Return scores in a type that numpy has."""
    return scores.float() if scores.dtype == torch.bfloat16 else scores


@torch.no_grad()
def initialize(model: InceptionV3, seed: int) -> None:
    """Give a new model the weights drawn from a seed."""
    for name, values in initial.weights(seed):
        model.get_parameter(name).copy_(torch.from_numpy(values))
    nn.init.zeros_(model.fc.bias)
    nn.init.zeros_(model.auxiliary_fc.bias)
