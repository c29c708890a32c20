"""ResNet-50 in TensorFlow's Keras: channels last, one traced function a step."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from tensorflow import keras

from tbdprof.suite.classification import Scores, batches
from tbdprof.suite.inputs import ImageBatch, feed
from tbdprof.suite.on_tensorflow import device_of, dtype_of
from tbdprof.suite.resnet50 import (
    CLASSES,
    MOMENTUM,
    NORM_EPSILON,
    NORM_MOMENTUM,
    WEIGHT_DECAY,
    initial,
    learning_rate,
)
from tbdprof.suite.resnet50.architecture import EXPANSION, STAGES, STEM_WIDTH, Stage, check, strides
from tbdprof.suite.workload import Config, Spec

POLICIES = {"fp32": "float32", "tf32": "float32", "fp64": "float64", "bf16": "mixed_bfloat16"}

Batch = tuple[tf.Tensor, tf.Tensor]  # images, labels
TrainStep = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]


class Bottleneck(keras.layers.Layer):  # type: ignore[misc]
    """A 1×1, a 3×3 and a 1×1 convolution around which a shortcut leads."""

    def __init__(self, inputs: int, width: int, stride: int, variant: str, *, name: str, dtype: str) -> None:
        super().__init__(name=name, dtype=dtype)
        outputs = EXPANSION * width
        first, second = strides(variant, stride)
        self.conv1 = convolution("conv1", width, 1, dtype, first)
        self.bn1 = normalization("bn1", dtype)
        self.conv2 = convolution("conv2", width, 3, dtype, second)
        self.bn2 = normalization("bn2", dtype)
        self.conv3 = convolution("conv3", outputs, 1, dtype)
        self.bn3 = normalization("bn3", dtype)
        self.relu = keras.layers.ReLU(name="relu", dtype=dtype)
        self.pad = keras.layers.ZeroPadding2D(1, name="pad", dtype=dtype) if second > 1 else None
        self.downsample = None
        if inputs != outputs:
            shortcut = [convolution("0", outputs, 1, dtype, stride), normalization("1", dtype)]
            self.downsample = keras.Sequential(shortcut, name="downsample")

    def build(self, _shape: object) -> None:
        """Leave each layer inside to its own call: Keras would run all of them once more to learn their shapes."""

    def call(self, x: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Return the block's output maps."""
        shortcut = x if self.downsample is None else self.downsample(x, training=training)
        x = self.relu(self.bn1(self.conv1(x), training=training))
        x = x if self.pad is None else self.pad(x)
        x = self.relu(self.bn2(self.conv2(x), training=training))
        x = self.bn3(self.conv3(x), training=training)
        return self.relu(x + shortcut)


class ResNet50(keras.Model):  # type: ignore[misc]
    """Images (batch, side, side, 3) to scores of the classes (batch, 1000)."""

    def __init__(self, variant: str = "v1.5", dtype: str = "float32") -> None:
        super().__init__(name="resnet50", dtype=dtype)
        self.pad = keras.layers.ZeroPadding2D(3, name="pad", dtype=dtype)
        self.conv1 = convolution("conv1", STEM_WIDTH, 7, dtype, 2)
        self.bn1 = normalization("bn1", dtype)
        self.relu = keras.layers.ReLU(name="relu", dtype=dtype)
        # Zeros do not change a maximum of what a ReLU puts out.
        self.maxpool_pad = keras.layers.ZeroPadding2D(1, name="maxpool_pad", dtype=dtype)
        self.maxpool = keras.layers.MaxPooling2D(3, strides=2, name="maxpool", dtype=dtype)
        self.layer1 = blocks("layer1", STEM_WIDTH, STAGES[0], variant, dtype)
        self.layer2 = blocks("layer2", EXPANSION * STAGES[0].width, STAGES[1], variant, dtype)
        self.layer3 = blocks("layer3", EXPANSION * STAGES[1].width, STAGES[2], variant, dtype)
        self.layer4 = blocks("layer4", EXPANSION * STAGES[2].width, STAGES[3], variant, dtype)
        self.avgpool = keras.layers.GlobalAveragePooling2D(name="avgpool", dtype=dtype)
        self.fc = keras.layers.Dense(CLASSES, kernel_initializer="zeros", name="fc", dtype=dtype)

    def call(self, images: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Return the scores, before any softmax."""
        x = self.relu(self.bn1(self.conv1(self.pad(images)), training=training))
        x = self.maxpool(self.maxpool_pad(x))
        x = self.layer2(self.layer1(x, training=training), training=training)
        x = self.layer4(self.layer3(x, training=training), training=training)
        return self.fc(self.avgpool(x))


def convolution(name: str, outputs: int, kernel: int, dtype: str, stride: int = 1) -> keras.layers.Conv2D:
    """Return a convolution without bias that pads by half its kernel, or not at all where it has a stride.

    What Keras calls "same" pads one side more than the other at a stride: there the maps are padded beforehand.
    """
    padding = "same" if stride == 1 else "valid"
    return keras.layers.Conv2D(
        outputs, kernel, stride, padding, use_bias=False, kernel_initializer="zeros", name=name, dtype=dtype
    )


def normalization(name: str, dtype: str) -> keras.layers.BatchNormalization:
    """Return a batch normalization with the suite's constants; Keras' momentum is the share of the old."""
    return keras.layers.BatchNormalization(epsilon=NORM_EPSILON, momentum=1 - NORM_MOMENTUM, name=name, dtype=dtype)


def blocks(name: str, inputs: int, stage: Stage, variant: str, dtype: str) -> keras.Sequential:
    """Return a stage's blocks; the first has its stride and widens."""
    first = Bottleneck(inputs, stage.width, stage.stride, variant, name="0", dtype=dtype)
    outputs = EXPANSION * stage.width
    others = (
        Bottleneck(outputs, stage.width, 1, variant, name=str(index), dtype=dtype) for index in range(1, stage.blocks)
    )
    return keras.Sequential([first, *others], name=name)


@dataclass(frozen=True, slots=True)
class Workload:
    """ResNet-50 and the batches it is trained on."""

    spec: Spec
    config: Config
    model: ResNet50
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
        """Train on a batch once; return its mean cross entropy."""
        return float(self.train_step(*on_device(batch, self.config)))

    def predict(self, images: NDArray[np.float32]) -> Scores:
        """Return the scores of images, with the running statistics."""
        with tf.device(device_of(self.config)):
            scores = at_least_float32(self.model(channels_last(images, self.config), training=False))
        found: Scores = scores.numpy()
        return found


def build(spec: Spec, config: Config) -> Workload:
    """Return ResNet-50 with its initial weights, its optimizer and its batches on the device."""
    check(config)
    with tf.device(device_of(config)):
        model = ResNet50(str(config.options["variant"]), POLICIES[config.precision])
        model(keras.Input((None, None, 3)))  # makes the weights and computes nothing
        initialize(model, config.seed)
        optimizer = keras.optimizers.SGD(learning_rate(config.batch_size), MOMENTUM)
        optimizer.build(model.trainable_variables)
    drawn = batches(config, int(config.options["image_size"]), CLASSES)
    fed = feed(drawn, partial(on_device, config=config), kept=config.data is None)
    inputs = next(fed) if config.data is None else ()
    return Workload(spec, config, model, optimizer, inputs, fed, train_step(model, optimizer, device_of(config)))


def train_step(model: ResNet50, optimizer: keras.optimizers.SGD, device: str) -> TrainStep:
    """Return the function that trains on a batch once and returns its mean cross entropy before that."""

    @tf.function(jit_compile=False)  # type: ignore[untyped-decorator]
    def step(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.device(device):
            with tf.GradientTape() as tape:
                scores = at_least_float32(model(images, training=True))
                loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores))
            weights = model.trainable_variables
            gradients = tape.gradient(loss, weights)
            # Keras' own weight decay shrinks the weights apart from the momentum: another algorithm.
            decayed = [gradient + WEIGHT_DECAY * weight for gradient, weight in zip(gradients, weights, strict=True)]
            optimizer.apply(decayed, weights)
            return loss

    compiled: TrainStep = step
    return compiled


def at_least_float32(scores: tf.Tensor) -> tf.Tensor:
    """Return scores in a type in which their exponentials can be added."""
    return tf.cast(scores, tf.float32) if scores.dtype == tf.bfloat16 else scores


def initialize(model: ResNet50, seed: int) -> None:
    """Give a model, whose other parameters have their first values, the weights drawn from a seed."""
    kernels = {variable.path: variable for variable in model.trainable_variables if variable.path.endswith("/kernel")}
    for name, values in initial.weights(seed):
        layer = name.removesuffix(".weight").replace(".", "/")
        axes = (2, 3, 1, 0) if values.ndim == 4 else (1, 0)
        kernels[f"{model.name}/{layer}/kernel"].assign(tf.transpose(values, axes))


def on_device(batch: ImageBatch, config: Config) -> Batch:
    """Return a batch as tensors, in memory that is TensorFlow's own: a mere constant may share numpy's."""
    with tf.device(device_of(config)):
        return channels_last(batch.images, config), tf.cast(batch.labels, tf.int32)


def channels_last(images: NDArray[np.float32], config: Config) -> tf.Tensor:
    """Return images in the model's data type, channels last."""
    return tf.transpose(tf.cast(images, dtype_of(config)), (0, 2, 3, 1))
