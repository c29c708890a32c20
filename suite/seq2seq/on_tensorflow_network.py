"""Seq2Seq's network in TensorFlow's Keras. The batch is the first axis, time the second."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from tensorflow import keras
from tensorflow.keras import layers

from tbdprof.suite.data.inputs import END, START
from tbdprof.suite.seq2seq.architecture import GATES, SOURCE_WORDS, TARGET_WORDS

State = tuple[tf.Tensor, tf.Tensor]  # a cell's output and its memory, each (batch, width)


class Memory(NamedTuple):
    """What the decoder knows about the source."""

    values: tf.Tensor  # (batch, source, 2 × width)
    keys: tf.Tensor  # (batch, source, width)
    words: tf.Tensor  # (batch, source), True where there is a word


class Embedding(layers.Embedding):  # type: ignore[misc]
    """An embedding whose gradient is one array of the table's shape, as in other frameworks.

    TensorFlow's own gradient is a list of rows. A word that occurs twice has two rows in it, so the norm of the list is
    not the norm of the gradient.
    """

    def call(self, words: tf.Tensor) -> tf.Tensor:
        """Return the row of each word."""
        return tf.cast(look_up(self.embeddings.value, words), self.compute_dtype)


@tf.custom_gradient  # type: ignore[untyped-decorator]
def look_up(table: tf.Tensor, words: tf.Tensor) -> tuple[tf.Tensor, Any]:
    """Return rows of a table, and the function that turns their gradient into the table's gradient."""

    def gradient(of_rows: tf.Tensor) -> tuple[tf.Tensor, None]:
        rows = tf.reshape(of_rows, (-1, table.shape[1]))
        return tf.math.unsorted_segment_sum(rows, tf.reshape(words, (-1,)), table.shape[0]), None

    return tf.gather(table, words), gradient


@tf.custom_gradient  # type: ignore[untyped-decorator]
def apart(x: tf.Tensor) -> tuple[tf.Tensor, Any]:
    """Return an array equal to `x` whose gradients are added up before they join the other gradients of `x`.

    TensorFlow adds three gradients in an order that varies: it begins with one whose memory it can reuse. Two sums of
    two gradients have a fixed order.
    """
    return tf.identity(x), lambda gradient: tf.ensure_shape(gradient, x.shape)


class GateCell(layers.Layer):  # type: ignore[misc]
    """One step of an LSTM; each gate is computed by matmuls of its own."""

    def __init__(self, width: int, **settings: Any) -> None:
        super().__init__(**settings)
        self.state_size = [width, width]
        self.output_size = width
        self.of_input = [layers.Dense(width, name=f"{gate}_of_input", dtype=self.dtype_policy) for gate in GATES]
        self.of_state = [
            layers.Dense(width, use_bias=False, name=f"{gate}_of_state", dtype=self.dtype_policy) for gate in GATES
        ]

    def build(self, shape: tuple[int | None, ...]) -> None:
        """Make the weights for inputs of a shape."""
        for own, last in zip(self.of_input, self.of_state, strict=True):
            own.build(shape)
            last.build((None, self.output_size))

    def call(self, x: tf.Tensor, state: Sequence[tf.Tensor], training: bool = False) -> tuple[tf.Tensor, State]:
        """Return the output and the state after an input of shape (batch, inputs)."""
        output, memory = state
        sums = (own(x) + last(output) for own, last in zip(self.of_input, self.of_state, strict=True))
        admit, forget, candidate, put_out = sums
        memory = tf.sigmoid(forget) * memory + tf.sigmoid(admit) * tf.tanh(candidate)
        output = tf.sigmoid(put_out) * tf.tanh(memory)
        return output, (output, memory)


def recurrent(width: int, *, fused: bool, back: bool, name: str, dtype: Any) -> layers.RNN:
    """Return one direction of the encoder's layer; Keras' own layer uses cuDNN on a GPU."""
    settings = {"return_sequences": True, "return_state": True, "go_backwards": back, "name": name, "dtype": dtype}
    if fused:  # the seed is of a dropout within the cell, which it does without; else Keras would draw one
        return layers.LSTM(width, seed=0, **settings)
    return layers.RNN(GateCell(width, name="cell", dtype=dtype), **settings)


def cell(width: int, *, fused: bool, name: str, dtype: Any) -> layers.Layer:
    """Return a cell: Keras' own if `fused`, else a `GateCell`."""
    own = {"name": name, "dtype": dtype}
    return layers.LSTMCell(width, seed=0, **own) if fused else GateCell(width, **own)


class Encoder(layers.Layer):  # type: ignore[misc]
    """Turns the words of the source into outputs that the decoder attends to, and into the decoder's first states."""

    def __init__(self, width: int, *, fused: bool, dropout: float, seed: int, **settings: Any) -> None:
        super().__init__(**settings)
        policy = self.dtype_policy
        self.embedding = Embedding(SOURCE_WORDS, width, name="embedding", dtype=policy)
        self.dropout = layers.Dropout(dropout, seed=seed, name="dropout", dtype=policy)
        self.ahead = recurrent(width, fused=fused, back=False, name="forward", dtype=policy)
        self.back = recurrent(width, fused=fused, back=True, name="backward", dtype=policy)

    def call(self, source: tf.Tensor, words: tf.Tensor, training: bool = False) -> tuple[tf.Tensor, State, State]:
        """Return the outputs (batch, source, 2 × width) and each direction's last state; padding changes no state."""
        x = self.dropout(self.embedding(source), training=training)
        ahead, *last = self.ahead(x, mask=words)
        back, *first = self.back(x, mask=words)
        return tf.concat([ahead, tf.reverse(back, [1])], 2), tuple(last), tuple(first)


class Decoder(layers.Layer):  # type: ignore[misc]
    """Turns the words of the target and the memory of the source into the logits of the next words."""

    def __init__(self, width: int, *, fused: bool, dropout: float, seed: int, **settings: Any) -> None:
        super().__init__(**settings)
        policy = self.dtype_policy
        self.embedding = Embedding(TARGET_WORDS, width, name="embedding", dtype=policy)
        self.dropout = layers.Dropout(dropout, seed=seed + 1, name="dropout", dtype=policy)
        self.first = cell(width, fused=fused, name="first", dtype=policy)
        self.second = cell(width, fused=fused, name="second", dtype=policy)
        self.memory = layers.Dense(width, use_bias=False, name="memory", dtype=policy)
        self.attention = layers.Dense(width, use_bias=False, name="attention", dtype=policy)
        self.projection = layers.Dense(TARGET_WORDS, use_bias=False, name="projection", dtype=policy)
        self.scale = self.add_weight(shape=(), initializer="ones", name="scale")

    def remember(self, outputs: tf.Tensor, words: tf.Tensor) -> Memory:
        """Return the memory of a source: the outputs of the encoder, and the keys computed from them."""
        return Memory(outputs, self.memory(outputs), words)

    def call(
        self,
        words: tf.Tensor,
        memory: Memory,
        states: tuple[State, State],
        training: bool = False,
    ) -> tf.Tensor:
        """Return the logits, (batch, target, vocabulary), of the word after each of `words`, (batch, target)."""
        embedded = tf.transpose(self.embedding(words), (1, 0, 2))
        steps = tf.shape(embedded)[0]
        inputs = tf.TensorArray(embedded.dtype, steps).unstack(embedded)

        def body(number: tf.Tensor, attention: tf.Tensor, states: Any, vectors: tf.TensorArray) -> tuple[Any, ...]:
            attention, states = self.step(inputs.read(number), attention, memory, states, training=training)
            return number + 1, attention, states, vectors.write(number, attention)

        begun = (0, tf.zeros_like(embedded[0]), states, tf.TensorArray(embedded.dtype, steps))
        # One at a time: steps that run at once would draw their dropout's random numbers in any order.
        *_, vectors = tf.while_loop(lambda number, *_: number < steps, body, begun, parallel_iterations=1)
        joined = tf.ensure_shape(vectors.stack(), embedded.shape)
        return self.projection(tf.transpose(joined, (1, 0, 2)))

    def step(
        self, word: tf.Tensor, attention: tf.Tensor, memory: Memory, states: tuple[State, State], *, training: bool
    ) -> tuple[tf.Tensor, tuple[State, State]]:
        """Return the attention vector (batch, width) and the states after one more word, which is given embedded."""
        x = self.dropout(tf.concat([word, attention], 1), training=training)
        output, first = self.first(x, states[0])
        query, second = self.second(self.dropout(output, training=training), states[1])
        return self.attend(apart(query), memory), (tuple(first), tuple(second))

    def attend(self, query: tf.Tensor, memory: Memory) -> tf.Tensor:
        """Return the attention vector of a query (batch, width)."""
        scores = tf.cast(self.scale, query.dtype) * tf.linalg.matvec(memory.keys, query)
        shares = tf.nn.softmax(tf.where(memory.words, scores, tf.constant(-np.inf, scores.dtype)))
        context = tf.linalg.matvec(memory.values, shares, transpose_a=True)
        return self.attention(tf.concat([query, context], 1))


class Seq2Seq(keras.Model):  # type: ignore[misc]
    """Turns sentences, and the words of their translations so far, into the logits of the next words."""

    def __init__(self, width: int, *, fused: bool, dropout: float, seed: int, policy: str) -> None:
        super().__init__(name="seq2seq", dtype=policy)
        settings: dict[str, Any] = {"fused": fused, "dropout": dropout, "seed": seed, "dtype": policy}
        self.encoder = Encoder(width, name="encoder", **settings)
        self.decoder = Decoder(width, name="decoder", **settings)

    def call(self, source: tf.Tensor, lengths: tf.Tensor, words: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Return the logits (batch, target, vocabulary); `source` is (batch, source) and `lengths` is (batch,)."""
        memory, states = self.read(source, lengths, training=training)
        return self.decoder(words, memory, states, training=training)

    def read(
        self, source: tf.Tensor, lengths: tf.Tensor, *, training: bool = False
    ) -> tuple[Memory, tuple[State, State]]:
        """Return the memory of the source, and the decoder's first states."""
        words = tf.sequence_mask(lengths, tf.shape(source)[1])
        outputs, last, first = self.encoder(source, words, training=training)
        return self.decoder.remember(outputs, words), (last, first)

    def translate(self, source: tf.Tensor, lengths: tf.Tensor, longest: int) -> NDArray[np.int32]:
        """Return greedy translations, (batch, at most `longest`); it stops once every row has an `END`."""
        memory, states = self.read(source, lengths)
        word, attention = tf.fill(tf.shape(lengths), START), tf.zeros_like(memory.keys[:, 0])
        words: list[NDArray[np.int32]] = []
        ended = np.zeros(len(lengths), bool)
        while len(words) < longest and not ended.all():
            embedded = self.decoder.embedding(word)
            attention, states = self.decoder.step(embedded, attention, memory, states, training=False)
            word = tf.argmax(self.decoder.projection(attention), 1, tf.int32)
            words.append(word.numpy())
            ended |= words[-1] == END
        return np.stack(words, 1)


def parts(model: Seq2Seq) -> dict[str, list[keras.Variable]]:
    """Map each name in `initial` to the variables that, transposed and joined by rows, make up this weight."""
    encoder, decoder = model.encoder, model.decoder
    cells = {
        "encoder.forward": encoder.ahead.cell,
        "encoder.backward": encoder.back.cell,
        "decoder.first": decoder.first,
        "decoder.second": decoder.second,
    }
    found = {
        "encoder.embedding.weight": [encoder.embedding.embeddings],
        "decoder.embedding.weight": [decoder.embedding.embeddings],
        **{f"decoder.{name}.weight": [getattr(decoder, name).kernel] for name in ("memory", "attention", "projection")},
    }
    for name, each in cells.items():
        found |= {f"{name}.{kind}": variables for kind, variables in of_cell(each).items()}
    return found


def of_cell(cell: layers.Layer) -> dict[str, list[keras.Variable]]:
    """Map the kinds of a cell's weights to their variables."""
    if isinstance(cell, GateCell):
        return {
            "input": [gate.kernel for gate in cell.of_input],
            "state": [gate.kernel for gate in cell.of_state],
            "bias": [gate.bias for gate in cell.of_input],
        }
    return {"input": [cell.kernel], "state": [cell.recurrent_kernel], "bias": [cell.bias]}


def from_torch(name: str, values: NDArray[Any]) -> NDArray[Any]:
    """Return a weight, given its name in `initial`, in Keras' order of axes: a matmul's inputs come first."""
    return values if values.ndim == 1 or "embedding" in name else values.T
