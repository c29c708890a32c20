"""Faster R-CNN in MXNet's Gluon."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, NamedTuple

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon, nd
from numpy.typing import NDArray

from tbdprof.suite.data.inputs import DetectionBatch, feed
from tbdprof.suite.faster_rcnn import LEARNING_RATE, MOMENTUM, WEIGHT_DECAY, anchors, initial, targets
from tbdprof.suite.faster_rcnn.architecture import CLASSES, check
from tbdprof.suite.faster_rcnn.detections import Detections, detections
from tbdprof.suite.faster_rcnn.on_mxnet_network import FasterRCNN, Outputs
from tbdprof.suite.faster_rcnn.regions import TESTED_AFTER, TESTED_BEFORE, map_sides
from tbdprof.suite.on_mxnet import check_precision, context_of, dtype_of, hybridize
from tbdprof.suite.workload import Config, Spec


class Example(NamedTuple):
    """`tbdprof.suite.faster_rcnn.targets.Example` as MXNet's arrays."""

    images: mx.nd.NDArray
    boxes: mx.nd.NDArray
    labels: mx.nd.NDArray
    anchors: mx.nd.NDArray
    sampled: mx.nd.NDArray
    positive: mx.nd.NDArray
    weights: mx.nd.NDArray
    targets: mx.nd.NDArray
    priorities: mx.nd.NDArray


@dataclass(frozen=True, slots=True)
class Workload:
    """Faster R-CNN and the images it is trained on."""

    spec: Spec
    config: Config
    model: FasterRCNN
    optimizer: gluon.Trainer
    inputs: tuple[mx.nd.NDArray, ...]  # filled if one image is reused, empty otherwise
    batches: Iterator[Example]
    numbers: Iterator[int]  # numbers of the images passed to `train`

    def step(self) -> float:
        """Train on the next image once, without waiting for it; return the number of images, 1."""
        self.update(next(self.batches))
        return 1

    def train(self, batch: DetectionBatch) -> float:
        """Train on an image once; return its loss."""
        example = targets.example(batch, self.config, next(self.numbers))
        return float(self.update(on_device(example, self.config)).asscalar())

    def predict(self, images: NDArray[np.float32]) -> Detections:
        """Return the detections in one image."""
        size = (images.shape[2], images.shape[3])
        every = as_array(anchors.anchors(*map_sides(*size)), self.config)
        before, after = TESTED_BEFORE, min(TESTED_AFTER, int(self.config.options["proposals_after"]))
        maps, proposals = self.model.proposed(as_array(images, self.config), every, before, after)
        regions = proposals.boxes[: int(proposals.valid.sum().asscalar())]
        found = (regions, *self.model.detect(maps, regions))
        return detections(size, *(values.asnumpy().astype(np.float64) for values in found))

    def update(self, example: Example) -> mx.nd.NDArray:
        """Train on an image once; return its loss before the update."""
        with autograd.record():
            loss = self.loss(example)
        loss.backward()
        self.optimizer.step(1)  # the loss is a mean already
        return loss

    def loss(self, example: Example) -> mx.nd.NDArray:
        """Return an image's loss: the proposal network's and the detection network's."""
        outputs = self.model(example.images, example.anchors, example.boxes, example.labels, example.priorities)
        return anchor_loss(outputs, example) + region_loss(outputs)


def anchor_loss(outputs: Outputs, example: Example) -> mx.nd.NDArray:
    """Return the proposal network's loss, as a mean over the sampled anchors.

    The paper weighs the deltas' loss by 10 over the number of positions, about 2,400; this is about 1 / 256, the weight
    of a sampled anchor (Ren et al., equation 1).
    """
    scores, deltas = (nd.take(each, example.sampled) for each in (outputs.anchor_scores, outputs.anchor_deltas))
    cross_entropies = -nd.pick(nd.log_softmax(scores), example.positive)
    distances = nd.smooth_l1(deltas - example.targets, scalar=1).sum(axis=1)
    return (example.weights * (cross_entropies + example.positive * distances)).sum()


def region_loss(outputs: Outputs) -> mx.nd.NDArray:
    """Return the detection network's loss, a mean over the sampled regions; deltas are those of the region's class."""
    sample = outputs.sample
    labels = nd.broadcast_to(sample.labels.reshape((-1, 1)), sample.targets.shape)
    deltas = nd.pick(outputs.deltas.reshape((-1, CLASSES, 4)), labels, axis=1)
    cross_entropies = -nd.pick(nd.log_softmax(outputs.scores), sample.labels)
    distances = nd.smooth_l1(deltas - sample.targets, scalar=1).sum(axis=1)
    return (sample.weights * (cross_entropies + (sample.labels > 0) * distances)).sum() / sample.weights.sum()


def build(spec: Spec, config: Config) -> Workload:
    """Return Faster R-CNN with its initial weights, its optimizer and its images on the device."""
    check(config)
    check_precision(spec, config)
    before, after, regions = (int(config.options[name]) for name in ("proposals_before", "proposals_after", "regions"))
    model = FasterRCNN(before, after, regions)
    model.cast(dtype_of(config))
    model.initialize(mx.init.Zero(), ctx=context_of(config))
    initialize(model, config.seed)
    hybridize(model, config)
    settings = {"learning_rate": LEARNING_RATE, "momentum": MOMENTUM, "wd": WEIGHT_DECAY}
    trainer = gluon.Trainer(model.collect_params(), "sgd", settings)
    fed = feed(targets.examples(config), partial(on_device, config=config), kept=config.data is None)
    inputs = next(fed) if config.data is None else ()
    return Workload(spec, config, model, trainer, inputs, fed, count())


def on_device(example: targets.Example, config: Config) -> Example:
    """Return an example as MXNet's arrays."""
    return Example(*(as_array(getattr(example, name), config) for name in Example._fields))


def as_array(values: NDArray[Any], config: Config) -> mx.nd.NDArray:
    """Return numbers, including integers, in the model's data type."""
    return nd.array(values, context_of(config), dtype_of(config))


def initialize(model: FasterRCNN, seed: int) -> None:
    """Set the weights drawn from a seed; all other parameters already have their initial values."""
    parameters = model._collect_params_with_prefix()  # noqa: SLF001 - the only way to structural names
    for name, values in initial.weights(seed):
        gluon_name = name if values.ndim > 1 else name.replace("weight", "gamma")
        parameters[gluon_name].set_data(nd.array(values))
