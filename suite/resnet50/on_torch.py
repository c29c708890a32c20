"""ResNet-50 in PyTorch."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from tbdprof.suite.classification import Scores, batches
from tbdprof.suite.inputs import ImageBatch, feed
from tbdprof.suite.on_torch import device_of, dtype_of
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

Batch = tuple[Tensor, Tensor]  # images, labels


class Bottleneck(nn.Module):
    """A 1×1, a 3×3 and a 1×1 convolution around which a shortcut leads."""

    def __init__(self, inputs: int, width: int, stride: int, variant: str) -> None:
        super().__init__()
        outputs = EXPANSION * width
        first, second = strides(variant, stride)
        self.conv1 = convolution(inputs, width, 1, first)
        self.bn1 = normalization(width)
        self.conv2 = convolution(width, width, 3, second)
        self.bn2 = normalization(width)
        self.conv3 = convolution(width, outputs, 1)
        self.bn3 = normalization(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module | None = None
        if inputs != outputs:
            self.downsample = nn.Sequential(convolution(inputs, outputs, 1, stride), normalization(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output maps."""
        shortcut = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        x = self.bn3(self.conv3(x))
        x += shortcut
        outputs: Tensor = self.relu(x)
        return outputs


class ResNet50(nn.Module):
    """Images (batch, 3, side, side) to scores of the classes (batch, 1000)."""

    def __init__(self, variant: str = "v1.5") -> None:
        super().__init__()
        self.conv1 = convolution(3, STEM_WIDTH, 7, 2)
        self.bn1 = normalization(STEM_WIDTH)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = blocks(STEM_WIDTH, STAGES[0], variant)
        self.layer2 = blocks(EXPANSION * STAGES[0].width, STAGES[1], variant)
        self.layer3 = blocks(EXPANSION * STAGES[1].width, STAGES[2], variant)
        self.layer4 = blocks(EXPANSION * STAGES[2].width, STAGES[3], variant)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(FEATURES, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        """Return the scores, before any softmax."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        scores: Tensor = self.fc(self.avgpool(x).flatten(1))
        return scores


def convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    """Return a convolution without bias that pads by half its kernel."""
    return nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)


def normalization(channels: int) -> nn.BatchNorm2d:
    """Return a batch normalization with the suite's constants."""
    return nn.BatchNorm2d(channels, eps=NORM_EPSILON, momentum=NORM_MOMENTUM)


def blocks(inputs: int, stage: Stage, variant: str) -> nn.Sequential:
    """Return a stage's blocks; the first has its stride and widens."""
    first = Bottleneck(inputs, stage.width, stage.stride, variant)
    outputs = EXPANSION * stage.width
    return nn.Sequential(first, *(Bottleneck(outputs, stage.width, 1, variant) for _ in range(stage.blocks - 1)))


@dataclass(frozen=True, slots=True)
class Workload:
    """ResNet-50 and the batches it is trained on."""

    spec: Spec
    config: Config
    model: ResNet50
    optimizer: torch.optim.SGD
    inputs: tuple[Tensor, ...]  # images and labels, where one batch is kept
    batches: Iterator[Batch]

    def step(self) -> float:
        """Train on the next batch once; return how many images it has."""
        images, labels = next(self.batches)
        self.update(images, labels)
        return self.config.batch_size

    def train(self, batch: ImageBatch) -> float:
        """Train on a batch once; return its mean cross entropy."""
        return self.update(*on_device(batch, self.config)).item()

    def predict(self, images: NDArray[np.float32]) -> Scores:
        """Return the scores of images, with the running statistics."""
        self.model.eval()
        with torch.no_grad(), self.autocast():
            scores = at_least_float32(self.model(as_tensor(images, self.config)))
        self.model.train()
        return scores.cpu().numpy()

    def update(self, images: Tensor, labels: Tensor) -> Tensor:
        """Train on a batch once; return its mean cross entropy before that."""
        self.optimizer.zero_grad()
        loss = self.loss(images, labels)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return loss.detach()

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """Return a batch's mean cross entropy."""
        with self.autocast():
            return functional.cross_entropy(self.model(images), labels)

    def autocast(self) -> torch.autocast:
        """Return the context in which a run in bf16 computes in it."""
        kind = device_of(self.config).type
        return torch.autocast(kind, torch.bfloat16, enabled=self.config.precision == "bf16")


def build(spec: Spec, config: Config) -> Workload:
    """Return ResNet-50 with its initial weights, its optimizer and its batches on the device."""
    check(config)
    model = ResNet50(str(config.options["variant"]))
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
def initialize(model: ResNet50, seed: int) -> None:
    """Give a new model the weights drawn from a seed."""
    for name, values in initial.weights(seed):
        model.get_parameter(name).copy_(torch.from_numpy(values))
    nn.init.zeros_(model.fc.bias)
