"""Faster R-CNN in PyTorch."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from tbdprof.suite.data.inputs import DetectionBatch, feed
from tbdprof.suite.faster_rcnn import LEARNING_RATE, MOMENTUM, WEIGHT_DECAY, anchors, initial, targets
from tbdprof.suite.faster_rcnn.architecture import CLASSES, check
from tbdprof.suite.faster_rcnn.detections import Detections, detections
from tbdprof.suite.faster_rcnn.on_torch_network import FasterRCNN, Outputs
from tbdprof.suite.faster_rcnn.regions import TESTED_AFTER, TESTED_BEFORE, map_sides
from tbdprof.suite.on_torch import autocast, device_of, dtype_of, optimizer_settings, switch
from tbdprof.suite.workload import Config, Spec


class Example(NamedTuple):
    """`tbdprof.suite.faster_rcnn.targets.Example` as tensors."""

    images: Tensor
    boxes: Tensor
    labels: Tensor
    anchors: Tensor
    sampled: Tensor
    positive: Tensor
    weights: Tensor
    targets: Tensor
    priorities: Tensor


@dataclass(frozen=True, slots=True)
class Workload:
    """Faster R-CNN and the images it is trained on."""

    spec: Spec
    config: Config
    model: FasterRCNN
    optimizer: torch.optim.SGD
    inputs: tuple[Tensor, ...]  # filled if one image is reused, empty otherwise
    batches: Iterator[Example]
    numbers: Iterator[int]  # numbers of the images passed to `train`

    def step(self) -> float:
        """Train on the next image once; return the number of images, 1."""
        self.update(next(self.batches))
        return 1

    def train(self, batch: DetectionBatch) -> float:
        """Train on an image once; return its loss."""
        return self.update(on_device(targets.example(batch, self.config, next(self.numbers)), self.config)).item()

    def predict(self, images: NDArray[np.float32]) -> Detections:
        """Return the detections in one image."""
        size = (images.shape[2], images.shape[3])
        every = as_tensor(anchors.anchors(*map_sides(*size)), self.config)
        before, after = TESTED_BEFORE, min(TESTED_AFTER, int(self.config.options["proposals_after"]))
        self.model.eval()
        with torch.no_grad(), autocast(self.config):
            maps, proposals = self.model.proposed(as_tensor(images, self.config), every, before, after)
            regions = proposals.boxes[proposals.valid]
            found = (regions, *self.model.detect(maps, regions))
        self.model.train()
        return detections(size, *(values.double().cpu().numpy() for values in found))

    def update(self, example: Example) -> Tensor:
        """Train on an image once; return its loss before the update."""
        self.optimizer.zero_grad()
        loss = self.loss(example)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return loss.detach()

    def loss(self, example: Example) -> Tensor:
        """Return an image's loss: the proposal network's and the detection network's."""
        with autocast(self.config):
            outputs = self.model(example.images, example.anchors, example.boxes, example.labels, example.priorities)
            return anchor_loss(outputs, example) + region_loss(outputs)


def anchor_loss(outputs: Outputs, example: Example) -> Tensor:
    """Return the proposal network's loss, as a mean over the sampled anchors.

    The paper weighs the deltas' loss by 10 over the number of positions, about 2,400; this is about 1 / 256, the weight
    of a sampled anchor (Ren et al., equation 1).
    """
    scores, deltas = outputs.anchor_scores[example.sampled], outputs.anchor_deltas[example.sampled]
    cross_entropies = functional.cross_entropy(scores, example.positive, reduction="none")
    distances = functional.smooth_l1_loss(deltas, example.targets, reduction="none").sum(1)
    return (example.weights * (cross_entropies + example.positive * distances)).sum()


def region_loss(outputs: Outputs) -> Tensor:
    """Return the detection network's loss, a mean over the sampled regions; deltas are those of the region's class."""
    sample = outputs.sample
    rows = torch.arange(len(sample.labels), device=sample.labels.device)
    deltas = outputs.deltas.view(-1, CLASSES, 4)[rows, sample.labels]
    cross_entropies = functional.cross_entropy(outputs.scores, sample.labels, reduction="none")
    distances = functional.smooth_l1_loss(deltas, sample.targets, reduction="none").sum(1)
    return (sample.weights * (cross_entropies + (sample.labels > 0) * distances)).sum() / sample.weights.sum()


def build(spec: Spec, config: Config) -> Workload:
    """Return Faster R-CNN with its initial weights, its optimizer and its images on the device."""
    check(config)
    before, after, regions = (int(config.options[name]) for name in ("proposals_before", "proposals_after", "regions"))
    model = FasterRCNN(before, after, regions)
    initialize(model, config.seed)
    model.to(device_of(config), dtype_of(config))
    switch(model, config)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(
        trained, lr=LEARNING_RATE, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY, **optimizer_settings(config)
    )
    fed = feed(targets.examples(config), partial(on_device, config=config), kept=config.data is None)
    inputs = next(fed) if config.data is None else ()
    return Workload(spec, config, model, optimizer, inputs, fed, count())


def on_device(example: targets.Example, config: Config) -> Example:
    """Return an example as tensors."""
    return Example(*(as_tensor(getattr(example, name), config) for name in Example._fields))


def as_tensor(values: NDArray[Any], config: Config) -> Tensor:
    """Return numbers copied into torch's own memory, in the model's data type; integers keep their type."""
    dtype = dtype_of(config) if np.issubdtype(values.dtype, np.floating) else torch.int64
    return torch.tensor(values, dtype=dtype, device=device_of(config))


@torch.no_grad()
def initialize(model: FasterRCNN, seed: int) -> None:
    """Set the weights drawn from a seed on a new model."""
    for module in (*model.proposals.children(), model.scores, model.deltas):
        if isinstance(module, nn.Conv2d | nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
    for name, values in initial.weights(seed):
        model.get_parameter(name).copy_(torch.from_numpy(values))
