"""Inception-v3 in TensorFlow's Keras: channels last, one traced function a step."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from tensorflow import keras

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
    CLASSES,
    LOWER,
    STEM,
    UPPER,
    Branches,
    Chain,
    Element,
    Step,
    check,
)
from tbdprof.suite.inputs import ImageBatch, feed
from tbdprof.suite.on_tensorflow import device_of, dtype_of
from tbdprof.suite.workload import Config, Spec

POOLINGS = (keras.layers.MaxPooling2D, keras.layers.AveragePooling2D)
POLICIES = {"fp32": "float32", "tf32": "float32", "fp64": "float64", "bf16": "mixed_bfloat16"}

Batch = tuple[tf.Tensor, tf.Tensor]  # images, labels
TrainStep = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]


class Convolution(keras.layers.Layer):  # type: ignore[misc]
    """A convolution without bias, batch normalization and ReLU."""

    def __init__(self, step: Step, *, name: str, dtype: str) -> None:
        super().__init__(name=name, dtype=dtype)
        self.conv = keras.layers.Conv2D(
            step.outputs,
            step.kernel,
            step.stride,
            "same" if step.padded else "valid",  # the padded ones have no stride: as much on both sides
            use_bias=False,
            kernel_initializer="zeros",
            name="conv",
            dtype=dtype,
        )
        # Keras' momentum is the share of the old.
        self.norm = keras.layers.BatchNormalization(
            epsilon=NORM_EPSILON, momentum=1 - NORM_MOMENTUM, name="norm", dtype=dtype
        )
        self.relu = keras.layers.ReLU(name="relu", dtype=dtype)

    def build(self, _shape: object) -> None:
        """Leave each layer inside to its own call: Keras would run all of them at each level to learn their shapes."""

    def call(self, x: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Return the step's output maps."""
        return self.relu(self.norm(self.conv(x), training=training))


class Row(keras.layers.Layer):  # type: ignore[misc]
    """Layers one after the other; where they nest, Keras's Sequential would run each several times to be built."""

    def __init__(self, steps: Chain, *, name: str, dtype: str) -> None:
        super().__init__(name=name, dtype=dtype)
        self.steps = [layer(element, step, dtype) for step, element in steps.items()]

    def build(self, _shape: object) -> None:
        """Leave each layer inside to its own call: Keras would run all of them at each level to learn their shapes."""

    def call(self, x: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Return the last layer's maps."""
        for step in self.steps:
            x = step(x) if isinstance(step, POOLINGS) else step(x, training=training)
        return x


class Inception(keras.layers.Layer):  # type: ignore[misc]
    """Branches side by side, joined over the channels."""

    def __init__(self, branches: Branches, *, name: str, dtype: str) -> None:
        super().__init__(name=name, dtype=dtype)
        self.branches = [Row(steps, name=branch, dtype=dtype) for branch, steps in branches.chains.items()]

    def build(self, _shape: object) -> None:
        """Leave each layer inside to its own call: Keras would run all of them at each level to learn their shapes."""

    def call(self, x: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Return the joined maps."""
        return tf.concat([branch(x, training=training) for branch in self.branches], -1)


class InceptionV3(keras.Model):  # type: ignore[misc]
    """Images (batch, side, side, 3) to scores of the classes (batch, 1000), and the auxiliary classifier's."""

    def __init__(self, dropout: float = DROPOUT, seed: int = 0, dtype: str = "float32") -> None:
        super().__init__(name="inception_v3", dtype=dtype)
        self.stem = Row(STEM, name="stem", dtype=dtype)
        self.lower = Row(LOWER, name="lower", dtype=dtype)
        self.upper = Row(UPPER, name="upper", dtype=dtype)
        self.dropout = keras.layers.Dropout(dropout, seed=seed, name="dropout", dtype=dtype)
        self.fc = keras.layers.Dense(CLASSES, kernel_initializer="zeros", name="fc", dtype=dtype)
        self.auxiliary = Row(AUXILIARY, name="auxiliary", dtype=dtype)
        self.auxiliary_fc = keras.layers.Dense(CLASSES, kernel_initializer="zeros", name="auxiliary_fc", dtype=dtype)
        self.avgpool = keras.layers.GlobalAveragePooling2D(name="avgpool", dtype=dtype)

    def call(self, images: tf.Tensor, training: bool = False) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the scores and the auxiliary scores, before any softmax."""
        maps = self.lower(self.stem(images, training=training), training=training)
        features = self.avgpool(self.upper(maps, training=training))
        auxiliary = self.avgpool(self.auxiliary(maps, training=training))
        return self.fc(self.dropout(features, training=training)), self.auxiliary_fc(auxiliary)


def layer(element: Element, name: str, dtype: str) -> keras.layers.Layer:
    """Return the layer for an element of a chain."""
    if isinstance(element, Branches):
        return Inception(element, name=name, dtype=dtype)
    if isinstance(element, Step):
        return Convolution(element, name=name, dtype=dtype)
    kind = POOLINGS[element.kind != "max"]
    return kind(element.size, element.stride, "same" if element.padded else "valid", name=name, dtype=dtype)


@dataclass(frozen=True, slots=True)
class Workload:
    """Inception-v3 and the batches it is trained on."""

    spec: Spec
    config: Config
    model: InceptionV3
    optimizer: keras.optimizers.SGD
    inputs: tuple[tf.Tensor, ...]  # images and labels, where one batch is kept
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
            scores, _ = self.model(channels_last(images, self.config), training=False)
        found: Scores = at_least_float32(scores).numpy()
        return found


def build(spec: Spec, config: Config) -> Workload:
    """Return Inception-v3 with its initial weights, its optimizer and its batches on the device."""
    check(config)
    dropout = DROPOUT if config.options["dropout"] == "on" else 0.0
    with tf.device(device_of(config)):
        model = InceptionV3(dropout, config.seed, POLICIES[config.precision])
        model(keras.Input((None, None, 3)))  # makes the weights and computes nothing
        initialize(model, config.seed)
        optimizer = keras.optimizers.SGD(learning_rate(config.batch_size), MOMENTUM)
        optimizer.build(model.trainable_variables)
    drawn = batches(config, int(config.options["image_size"]), CLASSES)
    fed = feed(drawn, partial(on_device, config=config), kept=config.data is None)
    inputs = next(fed) if config.data is None else ()
    return Workload(spec, config, model, optimizer, inputs, fed, train_step(model, optimizer, device_of(config)))


def train_step(model: InceptionV3, optimizer: keras.optimizers.SGD, device: str) -> TrainStep:
    """Return the function that trains on a batch once and returns its loss before that."""

    @tf.function(jit_compile=False)  # type: ignore[untyped-decorator]
    def step(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.device(device):
            with tf.GradientTape() as tape:
                scores, auxiliary = model(images, training=True)
                loss = mean_cross_entropy(scores, labels) + AUXILIARY_WEIGHT * mean_cross_entropy(auxiliary, labels)
            weights = model.trainable_variables
            gradients = tape.gradient(loss, weights)
            # Keras' own weight decay shrinks the weights apart from the momentum: another algorithm.
            decayed = [gradient + WEIGHT_DECAY * weight for gradient, weight in zip(gradients, weights, strict=True)]
            optimizer.apply(decayed, weights)
            return loss

    compiled: TrainStep = step
    return compiled


def mean_cross_entropy(scores: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Return a batch's mean cross entropy."""
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, at_least_float32(scores)))


def at_least_float32(scores: tf.Tensor) -> tf.Tensor:
    """Return scores in a type in which their exponentials can be added."""
    return tf.cast(scores, tf.float32) if scores.dtype == tf.bfloat16 else scores


def initialize(model: InceptionV3, seed: int) -> None:
    """Give a model, whose other parameters have their first values, the weights drawn from a seed."""
    kernels = {variable.path: variable for variable in model.trainable_variables if variable.path.endswith("/kernel")}
    for name, values in initial.weights(seed):
        path = name.removesuffix(".weight").replace(".", "/")
        axes = (2, 3, 1, 0) if values.ndim == 4 else (1, 0)
        kernels[f"{model.name}/{path}/kernel"].assign(tf.transpose(values, axes))


def on_device(batch: ImageBatch, config: Config) -> Batch:
    """Return a batch as tensors, in memory that is TensorFlow's own: a mere constant may share numpy's."""
    with tf.device(device_of(config)):
        return channels_last(batch.images, config), tf.cast(batch.labels, tf.int32)


def channels_last(images: NDArray[np.float32], config: Config) -> tf.Tensor:
    """Return images in the model's data type, channels last."""
    return tf.transpose(tf.cast(images, dtype_of(config)), (0, 2, 3, 1))
