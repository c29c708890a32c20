"""The Transformer's network in TensorFlow's Keras.

A position is masked by adding a number to its attention score: 0 if it is visible, or a very low number that leaves it
no weight.
"""

from collections.abc import Iterator
from itertools import count
from math import sqrt

import tensorflow as tf
from tensorflow import keras

from tbdprof.suite.transformer.architecture import HEADS, NORM_EPSILON, Sizes
from tbdprof.suite.transformer.sentences import PLACES


class Attention(keras.layers.Layer):  # type: ignore[misc]
    """Multi-head attention; the heads divide the width among themselves."""

    def __init__(self, width: int, *, name: str, dtype: str) -> None:
        super().__init__(name=name, dtype=dtype)
        self.scale = 1 / sqrt(width // HEADS)
        self.query = dense("query", width, dtype)
        self.key = dense("key", width, dtype)
        self.value = dense("value", width, dtype)
        self.joined = dense("output", width, dtype)  # Keras has a use of its own for `output`

    def build(self, *_shapes: object) -> None:
        """Build nothing: each inner layer builds itself when called. Keras would run all of them to find shapes."""

    def call(self, x: tf.Tensor, memory: tf.Tensor, hidden: tf.Tensor) -> tf.Tensor:
        """Return, for each position of `x`, what it attends to in `memory`; `hidden` is a mask, added to scores."""
        query, key, value = by_head(self.query(x)), by_head(self.key(memory)), by_head(self.value(memory))
        scores = tf.matmul(query * self.scale, key, transpose_b=True) + hidden
        attended = tf.matmul(tf.nn.softmax(scores), value)
        return self.joined(tf.reshape(tf.transpose(attended, (0, 2, 1, 3)), tf.shape(x)))


class EncoderBlock(keras.layers.Layer):  # type: ignore[misc]
    """Attention to the source, then two dense layers; each part has a residual connection, which is then normalized."""

    def __init__(self, sizes: Sizes, dropout: keras.layers.Dropout, *, name: str, dtype: str) -> None:
        super().__init__(name=name, dtype=dtype)
        self.attention = Attention(sizes.width, name="attention", dtype=dtype)
        self.attention_norm = layer_norm("attention_norm", dtype)
        self.inner = dense("inner", sizes.inner, dtype, activation="relu")
        self.outer = dense("outer", sizes.width, dtype)
        self.norm = layer_norm("norm", dtype)
        self.dropout = dropout

    def build(self, *_shapes: object) -> None:
        """Build nothing: each inner layer builds itself when it is called."""

    def call(self, x: tf.Tensor, hidden: tf.Tensor) -> tf.Tensor:
        """Return the block's output, of shape (batch, source, width)."""
        x = self.attention_norm(x + self.dropout(self.attention(x, x, hidden)))
        return self.norm(x + self.dropout(self.outer(self.inner(x))))


class DecoderBlock(keras.layers.Layer):  # type: ignore[misc]
    """Attention to the target so far, then to the source, then two dense layers; normalized as in `EncoderBlock`."""

    def __init__(self, sizes: Sizes, dropout: keras.layers.Dropout, *, name: str, dtype: str) -> None:
        super().__init__(name=name, dtype=dtype)
        self.attention = Attention(sizes.width, name="attention", dtype=dtype)
        self.attention_norm = layer_norm("attention_norm", dtype)
        self.cross_attention = Attention(sizes.width, name="cross_attention", dtype=dtype)
        self.cross_attention_norm = layer_norm("cross_attention_norm", dtype)
        self.inner = dense("inner", sizes.inner, dtype, activation="relu")
        self.outer = dense("outer", sizes.width, dtype)
        self.norm = layer_norm("norm", dtype)
        self.dropout = dropout

    def build(self, *_shapes: object) -> None:
        """Build nothing: each inner layer builds itself when it is called."""

    def call(self, x: tf.Tensor, later: tf.Tensor, memory: tf.Tensor, hidden: tf.Tensor) -> tf.Tensor:
        """Return the block's output, of shape (batch, target, width)."""
        x = self.attention_norm(x + self.dropout(self.attention(x, x, later)))
        x = self.cross_attention_norm(x + self.dropout(self.cross_attention(x, memory, hidden)))
        return self.norm(x + self.dropout(self.outer(self.inner(x))))


class Transformer(keras.Model):  # type: ignore[misc]
    """Turns words (batch, source) and (batch, target) into the scores of each next word, (batch, target, vocabulary).

    The embedding's weight is one variable. Its rows are looked up for both sides, and it is multiplied to give the
    scores.
    """

    def __init__(self, sizes: Sizes, dropout: float, seed: int, dtype: str) -> None:
        super().__init__(name="transformer", dtype=dtype)
        self.sizes = sizes
        drop = dropouts(dropout, seed, dtype)
        self.embedding = keras.layers.Embedding(sizes.vocabulary, sizes.width, "zeros", name="embedding", dtype=dtype)
        self.positions = self.add_weight((PLACES, sizes.width), "zeros", trainable=False, name="positions")
        self.dropout = next(drop)
        numbers = range(sizes.layers)
        self.encoder = [EncoderBlock(sizes, next(drop), name=f"encoder_{each}", dtype=dtype) for each in numbers]
        self.decoder = [DecoderBlock(sizes, next(drop), name=f"decoder_{each}", dtype=dtype) for each in numbers]

    def build(self, *_shapes: object) -> None:
        """Build nothing: each inner layer builds itself when it is called."""

    def call(self, source: tf.Tensor, hidden: tf.Tensor, given: tf.Tensor, later: tf.Tensor) -> tf.Tensor:
        """Return the scores, before any softmax.

        `hidden`, (batch, 1, 1, source), is added to attention scores and masks the padding of sources. `later`, (1, 1,
        target, target), masks for each target position those after it.
        """
        memory = self.embed(source)
        for block in self.encoder:
            memory = block(memory, hidden)
        x = self.embed(given)
        for block in self.decoder:
            x = block(x, later, memory, hidden)
        # As one matrix: of a batch of them TensorFlow would make a gradient of the weight each.
        scores = tf.matmul(tf.reshape(x, (-1, self.sizes.width)), self.weight(), transpose_b=True)
        return tf.reshape(scores, (-1, tf.shape(given)[1], self.sizes.vocabulary))

    def embed(self, words: tf.Tensor) -> tf.Tensor:
        """Return the scaled vectors of words, plus the vectors of their positions."""
        scaled = self.embedding(words) * sqrt(self.sizes.width)
        return self.dropout(scaled + tf.cast(self.positions[: tf.shape(words)[1]], scaled.dtype))

    def weight(self) -> tf.Tensor:
        """Return the embedding's weight in the data type of the computation."""
        return tf.cast(self.embedding.embeddings, self.compute_dtype)


def dense(name: str, outputs: int, dtype: str, activation: str | None = None) -> keras.layers.Dense:
    """Return a dense layer that is applied at each position of a batch."""
    return keras.layers.Dense(outputs, activation, kernel_initializer="zeros", name=name, dtype=dtype)


def layer_norm(name: str, dtype: str) -> keras.layers.LayerNormalization:
    """Return a normalization over the width."""
    return keras.layers.LayerNormalization(epsilon=NORM_EPSILON, name=name, dtype=dtype)


def dropouts(share: float, seed: int, dtype: str) -> Iterator[keras.layers.Dropout]:
    """Yield dropout layers, each with its own random numbers."""
    for number in count(1000 * seed):
        yield keras.layers.Dropout(share, seed=number, name="dropout", dtype=dtype)


def by_head(x: tf.Tensor) -> tf.Tensor:
    """Return an array (batch, places, width) as (batch, heads, places, width of a head)."""
    return tf.transpose(tf.reshape(x, (tf.shape(x)[0], -1, HEADS, x.shape[-1] // HEADS)), (0, 2, 1, 3))
