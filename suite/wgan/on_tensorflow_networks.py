"""WGAN-GP's generator and critic in TensorFlow's Keras, channels last."""

from itertools import pairwise

import tensorflow as tf
from tensorflow import keras

from tbdprof.suite.wgan import NORM_EPSILON
from tbdprof.suite.wgan.architecture import START, channels


class BatchNorm(keras.layers.Layer):  # type: ignore[misc]
    """A batch normalization that uses only the statistics of the current batch; Keras' own also keeps running ones."""

    def build(self, shape: tuple[int | None, ...]) -> None:
        """Make the scale and the shift of each channel."""
        self.gamma = self.add_weight(shape[-1:], initializer="ones", name="gamma")
        self.beta = self.add_weight(shape[-1:], initializer="zeros", name="beta")

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Return normalized activations; their mean and variance have the weights' precision."""
        mean, variance = tf.nn.moments(tf.cast(x, self.variable_dtype), (0, 1, 2))
        return scaled(x, mean, variance, self.beta.value, self.gamma.value)


class LayerNorm(keras.layers.Layer):  # type: ignore[misc]
    """A normalization over channel, height and width with a scale and a shift for each channel.

    Keras' GroupNormalization computes the same, but it uses `tf.nn.moments`, whose second gradient is wrong. The cause:
    it treats the mean in the variance as a constant, which is correct only for the first gradient.
    """

    def build(self, shape: tuple[int | None, ...]) -> None:
        """Make the scale and the shift of each channel."""
        self.gamma = self.add_weight(shape[-1:], initializer="ones", name="gamma")
        self.beta = self.add_weight(shape[-1:], initializer="zeros", name="beta")

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Return normalized activations; their mean and variance have the weights' precision."""
        maps = tf.cast(x, self.variable_dtype)
        mean = tf.reduce_mean(maps, (1, 2, 3), keepdims=True)
        variance = tf.reduce_mean(tf.math.squared_difference(maps, mean), (1, 2, 3), keepdims=True)
        return scaled(x, mean, variance, self.beta.value, self.gamma.value)


class UpBlock(keras.layers.Layer):  # type: ignore[misc]
    """A residual block that doubles height and width before the first of two 3×3 convolutions, and in its shortcut."""

    def __init__(self, outputs: int, *, name: str, dtype: str) -> None:
        super().__init__(name=name, dtype=dtype)
        self.norm1 = BatchNorm(name="norm1", dtype=dtype)
        self.conv1 = convolution("conv1", outputs, 3, dtype, bias=False)
        self.norm2 = BatchNorm(name="norm2", dtype=dtype)
        self.conv2 = convolution("conv2", outputs, 3, dtype)
        self.shortcut = convolution("shortcut", outputs, 1, dtype)
        self.relu = keras.layers.ReLU(name="relu", dtype=dtype)
        self.up = keras.layers.UpSampling2D(2, interpolation="nearest", name="up", dtype=dtype)

    def build(self, _shape: object) -> None:
        """Build nothing: each inner layer builds itself when called. Keras would run all of them to find shapes."""

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Return the block's output."""
        shortcut = self.shortcut(self.up(x))
        x = self.conv1(self.up(self.relu(self.norm1(x))))
        return self.conv2(self.relu(self.norm2(x))) + shortcut


class DownBlock(keras.layers.Layer):  # type: ignore[misc]
    """A residual block that halves height and width after the second of two 3×3 convolutions, and in its shortcut."""

    def __init__(self, inputs: int, outputs: int, *, name: str, dtype: str) -> None:
        super().__init__(name=name, dtype=dtype)
        self.norm1 = LayerNorm(name="norm1", dtype=dtype)
        self.conv1 = convolution("conv1", inputs, 3, dtype, bias=False)
        self.norm2 = LayerNorm(name="norm2", dtype=dtype)
        self.conv2 = convolution("conv2", outputs, 3, dtype)
        self.shortcut = convolution("shortcut", outputs, 1, dtype)
        self.relu = keras.layers.ReLU(name="relu", dtype=dtype)
        self.pool = keras.layers.AveragePooling2D(2, name="pool", dtype=dtype)

    def build(self, _shape: object) -> None:
        """Build nothing: each inner layer builds itself when called. Keras would run all of them to find shapes."""

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Return the block's output."""
        shortcut = self.shortcut(self.pool(x))
        x = self.conv1(self.relu(self.norm1(x)))
        return self.pool(self.conv2(self.relu(self.norm2(x)))) + shortcut


class Generator(keras.Model):  # type: ignore[misc]
    """Turns noise (batch, 128) into pictures (batch, 64, 64, 3)."""

    def __init__(self, width: int, dtype: str) -> None:
        super().__init__(name="generator", dtype=dtype)
        first, *others = channels(width)[::-1]
        self.dense = keras.layers.Dense(first * START**2, kernel_initializer="zeros", name="dense", dtype=dtype)
        self.unflatten = keras.layers.Reshape((START, START, first), name="unflatten", dtype=dtype)
        self.blocks = [UpBlock(each, name=f"block{number}", dtype=dtype) for number, each in enumerate(others, 1)]
        self.norm = BatchNorm(name="norm", dtype=dtype)
        self.relu = keras.layers.ReLU(name="relu", dtype=dtype)
        self.conv = convolution("conv", 3, 3, dtype)

    def call(self, noise: tf.Tensor) -> tf.Tensor:
        """Return pictures, from -1 to 1."""
        x = self.unflatten(self.dense(noise))
        for block in self.blocks:
            x = block(x)
        return tf.tanh(self.conv(self.relu(self.norm(x))))


class Critic(keras.Model):  # type: ignore[misc]
    """Turns pictures (batch, 64, 64, 3) into scores (batch,)."""

    def __init__(self, width: int, dtype: str) -> None:
        super().__init__(name="critic", dtype=dtype)
        joined = channels(width)
        self.conv = convolution("conv", joined[0], 3, dtype)
        self.blocks = [
            DownBlock(inputs, outputs, name=f"block{number}", dtype=dtype)
            for number, (inputs, outputs) in enumerate(pairwise(joined), 1)
        ]
        self.flatten = keras.layers.Flatten(name="flatten", dtype=dtype)
        self.dense = keras.layers.Dense(1, kernel_initializer="zeros", name="dense", dtype=dtype)

    def call(self, pictures: tf.Tensor) -> tf.Tensor:
        """Return the scores."""
        x = self.conv(pictures)
        for block in self.blocks:
            x = block(x)
        return tf.squeeze(self.dense(self.flatten(x)), 1)


def convolution(name: str, outputs: int, kernel: int, dtype: str, *, bias: bool = True) -> keras.layers.Conv2D:
    """Return a convolution that pads by half its kernel."""
    return keras.layers.Conv2D(
        outputs, kernel, padding="same", use_bias=bias, kernel_initializer="zeros", name=name, dtype=dtype
    )


def scaled(x: tf.Tensor, *statistics: tf.Tensor) -> tf.Tensor:
    """Return activations normalized by mean, variance, shift and scale, in the activations' precision."""
    return tf.nn.batch_normalization(x, *(tf.cast(each, x.dtype) for each in statistics), NORM_EPSILON)
