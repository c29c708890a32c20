"""The layers of Deep Speech 2 in TensorFlow's Keras: channels last."""

from typing import NamedTuple

import tensorflow as tf
from tensorflow import keras

from tbdprof.suite.deep_speech2 import CLIP, NORM_EPSILON, NORM_MOMENTUM
from tbdprof.suite.deep_speech2.architecture import CONVOLUTIONS, FEATURES, LAYERS, SYMBOLS

CELLS = {"gru": keras.layers.GRUCell, "rnn": keras.layers.SimpleRNNCell}
FUSED = {"gru": keras.layers.GRU, "rnn": keras.layers.SimpleRNN}


class Packing(NamedTuple):
    """`tbdprof.suite.deep_speech2.packing.Packing` as tensors."""

    lengths: tf.Tensor  # (batch,), number of positions without padding
    places: tf.Tensor  # (packed, 2), index of each position in arrays of (batch, times)
    mask: tf.Tensor  # (batch, times), true except at padding


class Convolution(keras.layers.Layer):  # type: ignore[misc]
    """Turns (batch, frequency, time, channels) into (packed, frequency, channels), normalized, clipped, unpadded.

    Frequency comes before time: with the axes swapped, oneDNN takes a hundred times as long for a weight's gradient.
    """

    def __init__(self, number: int, dtype: str) -> None:
        super().__init__(name=f"conv{number}", dtype=dtype)
        self.layer = CONVOLUTIONS[number - 1]
        sizes = (self.layer.outputs, self.layer.kernel[::-1], self.layer.stride[::-1])
        self.pad = keras.layers.ZeroPadding2D(self.layer.padding[::-1], name="pad", dtype=dtype)
        self.conv = keras.layers.Conv2D(*sizes, use_bias=False, name="conv", dtype=dtype)
        self.norm = normalization(dtype)
        self.relu = keras.layers.ReLU(CLIP, name="relu", dtype=dtype)

    def build(self, _shape: object) -> None:
        """Make the weights."""
        self.conv.build((None, None, None, self.layer.inputs))
        self.norm.build((None, self.layer.bins, self.layer.outputs))

    def call(self, maps: tf.Tensor, packing: Packing, *, training: bool) -> tf.Tensor:
        """Return the output at the positions without padding."""
        x = tf.gather_nd(tf.transpose(self.conv(self.pad(maps)), (0, 2, 1, 3)), packing.places)
        return self.relu(self.norm(x, training=training))


class Recurrent(keras.layers.Layer):  # type: ignore[misc]
    """A bidirectional recurrent layer, the outputs of both directions summed and normalized."""

    def __init__(self, number: int, width: int, cell: str, rnn: str, dtype: str) -> None:
        super().__init__(name=f"recurrent{number}", dtype=dtype)
        self.inputs, self.width = width if number > 1 else FEATURES, width
        self.ahead = direction("ahead", width, cell, rnn, dtype)
        self.back = direction("back", width, cell, rnn, dtype)
        self.norm = normalization(dtype)

    def build(self, _shape: object) -> None:
        """Make the weights."""
        self.ahead.build((None, None, self.inputs))
        self.back.build((None, None, self.inputs))
        self.norm.build((None, self.width))

    def call(self, places: tf.Tensor, packing: Packing, *, training: bool) -> tf.Tensor:
        """Return the outputs (packed, width) for packed inputs (packed, inputs)."""
        x = filled(places, packing)
        back = tf.reverse(self.back(x, mask=packing.mask, training=training), [1])
        summed = self.ahead(x, mask=packing.mask, training=training) + back
        return self.norm(tf.gather_nd(summed, packing.places), training=training)


class DeepSpeech2(keras.Model):  # type: ignore[misc]
    """Spectrograms (batch, frames, 161) to the scores of symbols (batch, times, 29)."""

    def __init__(self, width: int, cell: str, rnn: str, dtype: str = "float32") -> None:
        super().__init__(name="deep_speech2", dtype=dtype)
        self.width = width
        self.convolutions = [Convolution(number, dtype) for number in (1, 2)]
        self.recurrent = [Recurrent(number, width, cell, rnn, dtype) for number in range(1, LAYERS + 1)]
        self.dense = keras.layers.Dense(width, name="dense", dtype=dtype)
        self.relu = keras.layers.ReLU(CLIP, name="relu", dtype=dtype)
        self.symbols = keras.layers.Dense(SYMBOLS, name="symbols", dtype=dtype)

    def build(self, _shape: object = None) -> None:
        """Make the weights without computing anything."""
        layers: list[keras.layers.Layer] = [*self.convolutions, *self.recurrent]
        for layer in layers:
            layer.build(None)
        for dense in (self.dense, self.symbols):
            dense.build((None, self.width))
        self.built = True

    def call(self, spectrograms: tf.Tensor, packing: Packing, *, training: bool = False) -> tf.Tensor:
        """Return the scores; scores at padding are 0."""
        first, second = self.convolutions
        x = first(tf.expand_dims(tf.transpose(spectrograms, (0, 2, 1)), 3), packing, training=training)
        x = second(tf.transpose(filled(x, packing), (0, 2, 1, 3)), packing, training=training)
        x = tf.reshape(x, (-1, FEATURES))
        for layer in self.recurrent:
            x = layer(x, packing, training=training)
        return filled(self.symbols(self.relu(self.dense(x))), packing)


def filled(places: tf.Tensor, packing: Packing) -> tf.Tensor:
    """Return packed positions as an array (batch, times, …), padded with zeros."""
    shape = tf.concat([tf.shape(packing.mask), tf.shape(places)[1:]], 0)
    padded = tf.scatter_nd(packing.places, places, shape)
    return tf.ensure_shape(padded, [*packing.mask.shape, *places.shape[1:]])


def direction(name: str, width: int, cell: str, rnn: str, dtype: str) -> keras.layers.RNN:
    """Return one direction of a recurrent layer with zero weights; "back" returns its outputs in reversed order."""
    # An orthogonal initializer would take long. The seed is for dropout, which is not used here.
    zeros = {"kernel_initializer": "zeros", "recurrent_initializer": "zeros", "seed": 0}
    shared = {"return_sequences": True, "go_backwards": name == "back", "name": name, "dtype": dtype}
    if rnn == "cell":
        return keras.layers.RNN(CELLS[cell](width, name="cell", dtype=dtype, **zeros), **shared)
    return FUSED[cell](width, **zeros, **shared)


def normalization(dtype: str) -> keras.layers.BatchNormalization:
    """Return a batch normalization over packed positions."""
    return keras.layers.BatchNormalization(epsilon=NORM_EPSILON, momentum=1 - NORM_MOMENTUM, name="norm", dtype=dtype)
