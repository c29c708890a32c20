"""Inception-v3 in TensorFlow's Keras: channels are last, and each training step is one traced function."""

import tensorflow as tf
from tensorflow import keras

from tbdprof.suite.classifier import CLASSES, NORM_EPSILON, NORM_MOMENTUM
from tbdprof.suite.classifier.initial import weights
from tbdprof.suite.classifier.on_tensorflow import Workload, mean_cross_entropy, workload
from tbdprof.suite.inception_v3 import AUXILIARY_WEIGHT, DROPOUT
from tbdprof.suite.inception_v3.architecture import (
    AUXILIARY,
    LOWER,
    STEM,
    UPPER,
    Branches,
    Chain,
    Element,
    Step,
    check,
    layers,
)
from tbdprof.suite.on_tensorflow import device_of, policy_of
from tbdprof.suite.workload import Config, Spec

POOLINGS = (keras.layers.MaxPooling2D, keras.layers.AveragePooling2D)


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
        """Build nothing: inner layers build when called. Keras would run all of them at each level to find shapes."""

    def call(self, x: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Return the layer's output."""
        return self.relu(self.norm(self.conv(x), training=training))


class Row(keras.layers.Layer):  # type: ignore[misc]
    """Layers one after the other; Keras's Sequential would run nested layers several times to build them."""

    def __init__(self, steps: Chain, *, name: str, dtype: str) -> None:
        super().__init__(name=name, dtype=dtype)
        self.steps = [layer(element, step, dtype) for step, element in steps.items()]

    def build(self, _shape: object) -> None:
        """Build nothing: inner layers build when called. Keras would run all of them at each level to find shapes."""

    def call(self, x: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Return the output of the last layer."""
        for step in self.steps:
            x = step(x) if isinstance(step, POOLINGS) else step(x, training=training)
        return x


class Inception(keras.layers.Layer):  # type: ignore[misc]
    """Several branches with the same input; their outputs are joined over the channels."""

    def __init__(self, branches: Branches, *, name: str, dtype: str) -> None:
        super().__init__(name=name, dtype=dtype)
        self.branches = [Row(steps, name=branch, dtype=dtype) for branch, steps in branches.chains.items()]

    def build(self, _shape: object) -> None:
        """Build nothing: inner layers build when called. Keras would run all of them at each level to find shapes."""

    def call(self, x: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Return the joined outputs of the branches."""
        return tf.concat([branch(x, training=training) for branch in self.branches], -1)


class InceptionV3(keras.Model):  # type: ignore[misc]
    """Turns images (batch, side, side, 3) into scores of the classes (batch, 1000), and the auxiliary scores."""

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


def build(spec: Spec, config: Config) -> Workload:
    """Return Inception-v3 with its initial weights, its optimizer and its batches on the device."""
    check(config)
    dropout = DROPOUT if config.options["dropout"] == "on" else 0.0
    with tf.device(device_of(config)):
        model = InceptionV3(dropout, config.seed, policy_of(config))
    return workload(spec, config, model, weights(layers(), config.seed), loss)


def loss(both: tuple[tf.Tensor, tf.Tensor], labels: tf.Tensor) -> tf.Tensor:
    """Return a batch's mean cross entropy, plus the auxiliary classifier's times its weight."""
    scores, auxiliary = both
    return mean_cross_entropy(scores, labels) + AUXILIARY_WEIGHT * mean_cross_entropy(auxiliary, labels)
