"""How an image classifier is trained in PyTorch."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tbdprof.suite.classifier import CLASSES, MOMENTUM, WEIGHT_DECAY, learning_rate
from tbdprof.suite.classifier.batches import Scores, batches
from tbdprof.suite.data.inputs import ImageBatch, feed
from tbdprof.suite.initial import Weights
from tbdprof.suite.on_torch import at_least_float32, autocast, device_of, dtype_of, optimizer_settings, switch
from tbdprof.suite.workload import Config, Spec

Batch = tuple[Tensor, Tensor]  # images, labels
Loss = Callable[[Any, Tensor], Tensor]  # takes the network's outputs and the labels


@dataclass(frozen=True, slots=True)
class Workload:
    """An image classifier and the batches it is trained on."""

    spec: Spec
    config: Config
    model: nn.Module
    optimizer: torch.optim.SGD
    inputs: tuple[Tensor, ...]  # images and labels if one batch is reused, empty otherwise
    batches: Iterator[Batch]
    loss_of: Loss

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
        with torch.no_grad(), autocast(self.config):
            scores = at_least_float32(scores_of(self.model(as_tensor(images, self.config))))
        self.model.train()
        return scores.cpu().numpy()

    def update(self, images: Tensor, labels: Tensor) -> Tensor:
        """Train on a batch once; return its loss before the update."""
        self.optimizer.zero_grad()
        loss = self.loss(images, labels)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return loss.detach()

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """Return a batch's loss."""
        with autocast(self.config):
            return self.loss_of(self.model(images), labels)


def workload(
    spec: Spec,
    config: Config,
    model: nn.Module,
    weights: Weights,
    loss: Loss,
    blocks: tuple[type[nn.Module], ...] = (),
) -> Workload:
    """Return a new network with its initial weights, its optimizer and its batches on the device.

    With activation checkpointing, the maps within each of the `blocks` are computed again.
    """
    initialize(model, weights)
    model.to(device_of(config), dtype_of(config))
    switch(model, config, blocks)
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=learning_rate(config.batch_size),
        momentum=MOMENTUM,
        weight_decay=WEIGHT_DECAY,
        **optimizer_settings(config),
    )
    drawn = batches(config, int(config.options["image_size"]), CLASSES)
    fed = feed(drawn, partial(on_device, config=config), kept=config.data is None)
    inputs = next(fed) if config.data is None else ()
    return Workload(spec, config, model, optimizer, inputs, fed, loss)


def scores_of(outputs: Tensor | tuple[Tensor, ...]) -> Tensor:
    """Return only the scores from a network's outputs; an auxiliary classifier's scores would come second."""
    return outputs[0] if isinstance(outputs, tuple) else outputs


def on_device(batch: ImageBatch, config: Config) -> Batch:
    """Return a batch as tensors, copied into torch's own memory."""
    return as_tensor(batch.images, config), torch.tensor(batch.labels, device=device_of(config))


def as_tensor(images: NDArray[np.float32], config: Config) -> Tensor:
    """Return images in the model's data type."""
    return torch.tensor(images, dtype=dtype_of(config), device=device_of(config))


@torch.no_grad()
def initialize(model: nn.Module, weights: Weights) -> None:
    """Set the drawn weights on a new network, and the biases of its dense layers to 0."""
    for name, values in weights:
        model.get_parameter(name).copy_(torch.from_numpy(values))
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)
