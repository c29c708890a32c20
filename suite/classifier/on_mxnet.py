"""How an image classifier is trained in MXNet's Gluon."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from numpy.typing import NDArray

from tbdprof.suite.classifier import CLASSES, MOMENTUM, WEIGHT_DECAY, learning_rate
from tbdprof.suite.classifier.batches import Scores, batches
from tbdprof.suite.data.inputs import ImageBatch, feed
from tbdprof.suite.initial import Weights
from tbdprof.suite.on_mxnet import context_of, dtype_of, hybridize
from tbdprof.suite.workload import Config, Spec

Batch = tuple[mx.nd.NDArray, mx.nd.NDArray]  # images, labels
Loss = Callable[[Any, mx.nd.NDArray], mx.nd.NDArray]  # takes the network's outputs and the labels


@dataclass(frozen=True, slots=True)
class Workload:
    """An image classifier and the batches it is trained on."""

    spec: Spec
    config: Config
    model: gluon.HybridBlock
    optimizer: gluon.Trainer
    inputs: tuple[mx.nd.NDArray, ...]  # images and labels if one batch is reused, empty otherwise
    batches: Iterator[Batch]
    loss_of: Loss

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
        outputs = self.model(as_array(images, self.config))
        # If there is an auxiliary classifier, its scores come second.
        scores: Scores = (outputs[0] if isinstance(outputs, tuple | list) else outputs).asnumpy()
        return scores

    def update(self, images: mx.nd.NDArray, labels: mx.nd.NDArray) -> mx.nd.NDArray:
        """Train on a batch once; return its loss before the update."""
        with autograd.record():
            loss = self.loss(images, labels)
        loss.backward()
        self.optimizer.step(1)  # the loss is a mean already
        return loss

    def loss(self, images: mx.nd.NDArray, labels: mx.nd.NDArray) -> mx.nd.NDArray:
        """Return a batch's loss."""
        return self.loss_of(self.model(images), labels)


def workload(spec: Spec, config: Config, model: gluon.HybridBlock, weights: Weights, loss: Loss) -> Workload:
    """Return a new network with its initial weights, its optimizer and its batches on the device."""
    model.cast(dtype_of(config))
    model.initialize(mx.init.Zero(), ctx=context_of(config))
    initialize(model, weights)
    hybridize(model, config)
    settings = {"learning_rate": learning_rate(config.batch_size), "momentum": MOMENTUM, "wd": WEIGHT_DECAY}
    trainer = gluon.Trainer(model.collect_params(), "sgd", settings)
    drawn = batches(config, int(config.options["image_size"]), CLASSES)
    fed = feed(drawn, partial(on_device, config=config), kept=config.data is None)
    inputs = next(fed) if config.data is None else ()
    return Workload(spec, config, model, trainer, inputs, fed, loss)


def mean_cross_entropy() -> Loss:
    """Return the function that computes the mean cross entropy of scores with labels."""
    of_each = gluon.loss.SoftmaxCrossEntropyLoss()
    return lambda scores, labels: of_each(scores, labels).mean()


def on_device(batch: ImageBatch, config: Config) -> Batch:
    """Return a batch as MXNet's arrays."""
    return as_array(batch.images, config), as_array(batch.labels, config)


def as_array(values: NDArray[Any], config: Config) -> mx.nd.NDArray:
    """Return images or labels in the model's data type."""
    return mx.nd.array(values, context_of(config), dtype_of(config))


def initialize(model: gluon.HybridBlock, weights: Weights) -> None:
    """Set the weights drawn for a network; all other parameters already have their initial values."""
    parameters = model._collect_params_with_prefix()  # noqa: SLF001 - the only way to structural names
    for name, values in weights:
        parameters[name].set_data(mx.nd.array(values))
