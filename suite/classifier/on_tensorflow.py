"""How an image classifier is trained in TensorFlow's Keras: channels last, one traced function a step."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from tensorflow import keras

from tbdprof.suite.classifier import CLASSES, MOMENTUM, WEIGHT_DECAY, learning_rate
from tbdprof.suite.classifier.batches import Scores, batches
from tbdprof.suite.data.inputs import ImageBatch, feed
from tbdprof.suite.initial import Weights
from tbdprof.suite.on_tensorflow import at_least_float32, device_of, dtype_of, traced
from tbdprof.suite.workload import Config, Spec

Batch = tuple[tf.Tensor, tf.Tensor]  # images, labels
TrainStep = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
Loss = Callable[[Any, tf.Tensor], tf.Tensor]  # takes the network's outputs and the labels


@dataclass(frozen=True, slots=True)
class Workload:
    """An image classifier and the batches it is trained on."""

    spec: Spec
    config: Config
    model: keras.Model
    optimizer: keras.optimizers.SGD
    inputs: tuple[tf.Tensor, ...]  # images and labels if one batch is reused, empty otherwise
    batches: Iterator[Batch]
    train_step: TrainStep

    def step(self) -> float:
        """Train on the next batch once; return how many images it has."""
        images, labels = next(self.batches)
        self.train_step(images, labels)
        return self.config.batch_size

    def train(self, batch: ImageBatch) -> float:
        """Train on a batch once; return its loss."""
        return float(self.train_step(*on_device(batch, self.config)))

    def predict(self, images: NDArray[np.float32]) -> Scores:
        """Return the scores of images, with the running statistics and without dropout."""
        with tf.device(device_of(self.config)):
            outputs = self.model(channels_last(images, self.config), training=False)
            # If there is an auxiliary classifier, its scores come second.
            scores = at_least_float32(outputs[0] if isinstance(outputs, tuple) else outputs)
        found: Scores = scores.numpy()
        return found


def workload(spec: Spec, config: Config, model: keras.Model, weights: Weights, loss: Loss) -> Workload:
    """Return a new network with its initial weights, its optimizer and its batches on the device."""
    with tf.device(device_of(config)):
        model(keras.Input((None, None, 3)))  # creates the weights without computing anything
        initialize(model, weights)
        optimizer = keras.optimizers.SGD(learning_rate(config.batch_size), MOMENTUM)
        optimizer.build(model.trainable_variables)
    drawn = batches(config, int(config.options["image_size"]), CLASSES)
    fed = feed(drawn, partial(on_device, config=config), kept=config.data is None)
    inputs = next(fed) if config.data is None else ()
    return Workload(spec, config, model, optimizer, inputs, fed, train_step(model, optimizer, loss, config))


def train_step(model: keras.Model, optimizer: keras.optimizers.SGD, loss_of: Loss, config: Config) -> TrainStep:
    """Return the function that trains on a batch once and returns its loss before the update."""

    @traced(config)
    def step(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.device(device_of(config)):
            with tf.GradientTape() as tape:
                loss = loss_of(model(images, training=True), labels)
            weights = model.trainable_variables
            gradients = tape.gradient(loss, weights)
            # Keras' own weight decay is another algorithm: it shrinks the weights without passing through the momentum.
            decayed = [gradient + WEIGHT_DECAY * weight for gradient, weight in zip(gradients, weights, strict=True)]
            optimizer.apply(decayed, weights)
            return loss

    return step


def mean_cross_entropy(scores: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Return the mean cross entropy of scores with labels."""
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, at_least_float32(scores)))


def initialize(model: keras.Model, weights: Weights) -> None:
    """Set the weights drawn for a network; all other parameters already have their initial values."""
    kernels = {variable.path: variable for variable in model.trainable_variables if variable.path.endswith("/kernel")}
    for name, values in weights:
        layer = name.removesuffix(".weight").replace(".", "/")
        axes = (2, 3, 1, 0) if values.ndim == 4 else (1, 0)
        kernels[f"{model.name}/{layer}/kernel"].assign(tf.transpose(values, axes))


def on_device(batch: ImageBatch, config: Config) -> Batch:
    """Return a batch as tensors in TensorFlow's own memory; a plain constant may share numpy's memory."""
    with tf.device(device_of(config)):
        return channels_last(batch.images, config), tf.cast(batch.labels, tf.int32)


def channels_last(images: NDArray[np.float32], config: Config) -> tf.Tensor:
    """Return images in the model's data type, channels last."""
    return tf.transpose(tf.cast(images, dtype_of(config)), (0, 2, 3, 1))
