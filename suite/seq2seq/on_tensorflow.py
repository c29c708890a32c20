"""Seq2Seq in TensorFlow's Keras.

A training step is a traced function. For synthetic batches there is one function for each of their few shapes: then the
size of every matmul is known and can be counted. For batches of a data set one function serves any length.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from tensorflow import keras

from tbdprof.facts.consumed import Consumed
from tbdprof.suite.data.inputs import START, SentencePairs, feed
from tbdprof.suite.data.text.buckets import Sentences
from tbdprof.suite.data.text.corpora import IWSLT15
from tbdprof.suite.data.text.translation import batches, consumed
from tbdprof.suite.on_tensorflow import device_of, policy_of
from tbdprof.suite.seq2seq import DROPOUT, LARGEST_NORM, initial, learning_rate
from tbdprof.suite.seq2seq.on_tensorflow_network import Seq2Seq, from_torch, parts
from tbdprof.suite.workload import PERIOD, Config, Spec


class Batch(NamedTuple):
    """Sentences as tensors."""

    source: tf.Tensor  # (batch, source)
    lengths: tf.Tensor  # (batch,) of the source
    words: tf.Tensor  # (batch, target) that the decoder is given
    answers: tf.Tensor  # (batch, target) that it is to give
    target_lengths: tf.Tensor  # (batch,)


SIGNATURE = Batch(
    *(
        tf.TensorSpec((None, None) if name in ("source", "words", "answers") else (None,), tf.int32, name)
        for name in Batch._fields
    )
)
Computed = Callable[[Batch], tf.Tensor]


@dataclass(frozen=True, slots=True)
class Workload:
    """Seq2Seq and the sentences it is trained on."""

    spec: Spec
    config: Config
    model: Seq2Seq
    optimizer: keras.optimizers.SGD
    inputs: tuple[tf.Tensor, ...]  # those of the synthetic batches, which are reused
    batches: Iterator[tuple[Batch, Consumed]]
    train_step: Computed  # trains on a batch of a run once, returns its loss before that
    train_any: Computed  # the same on a batch of any shape
    log_probabilities: Computed  # the log-probability of each answer (batch, target), without dropout

    def step(self) -> Consumed:
        """Train on the next batch once; return what it consumed."""
        batch, held = next(self.batches)
        self.train_step(batch)
        return held

    def train(self, batch: SentencePairs) -> float:
        """Train on a batch once; return its mean loss per target token."""
        loss = float(self.train_any(on_device(batch, self.config)))
        return loss * len(batch.source) / float(batch.target_lengths.sum())

    def predict(self, inputs: SentencePairs) -> NDArray[np.floating[Any]]:
        """Return the log-probability of each target token, (batch, target), given the true tokens before it."""
        predicted: NDArray[np.floating[Any]] = self.log_probabilities(on_device(inputs, self.config)).numpy()
        return predicted

    def translate(
        self, source: NDArray[np.int32], source_lengths: NDArray[np.int32], longest: int
    ) -> NDArray[np.int32]:
        """Return greedy translations, (batch, at most `longest`); ignore what follows the first `END` of a row."""
        with tf.device(device_of(self.config)):
            return self.model.translate(tf.constant(source), tf.constant(source_lengths), longest)


def build(spec: Spec, config: Config) -> Workload:
    """Return Seq2Seq with its initial weights, its optimizer and its batches on the device."""
    width, fused = int(config.options["width"]), config.options["rnn"] == "fused"
    dropout = DROPOUT if config.options["dropout"] == "on" else 0.0
    device = device_of(config)
    with tf.device(device):
        model = Seq2Seq(width, fused=fused, dropout=dropout, seed=config.seed, policy=policy_of(config))
        make_weights(model)
        initialize(model, config.seed, width)
        optimizer = keras.optimizers.SGD(learning_rate(config.batch_size), global_clipnorm=LARGEST_NORM)
        optimizer.build(model.trainable_variables)
    kept = 0 if config.data else PERIOD
    drawn = batches(config, IWSLT15, Sentences(config.batch_size), PERIOD)
    fed = feed(drawn, partial(with_counts, config=config), kept=kept)
    inputs = tuple(tensor for _ in range(kept) for tensor in next(fed)[0])
    of_any = train_step(model, optimizer, device, [SIGNATURE])
    of_each = train_step(model, optimizer, device, None) if kept else of_any
    return Workload(spec, config, model, optimizer, inputs, fed, of_each, of_any, log_probabilities_of(model, device))


def make_weights(model: Seq2Seq) -> None:
    """Make the weights of a new model, without computing anything."""
    tf.function(model).get_concrete_function(SIGNATURE.source, SIGNATURE.lengths, SIGNATURE.words)


def train_step(model: Seq2Seq, optimizer: keras.optimizers.SGD, device: str, signature: list[Batch] | None) -> Computed:
    """Return the function that trains on a batch once and returns its loss before the update.

    If `signature` is None, the function is traced for each shape of batch.
    """

    @tf.function(input_signature=signature, jit_compile=False)  # type: ignore[untyped-decorator]
    def step(batch: Batch) -> tf.Tensor:
        with tf.device(device):
            with tf.GradientTape() as tape:
                loss = loss_of(model, batch)
            weights = model.trainable_variables
            optimizer.apply(tape.gradient(loss, weights), weights)
            return loss

    compiled: Computed = step
    return compiled


def log_probabilities_of(model: Seq2Seq, device: str) -> Computed:
    """Return the function that gives the log-probability of each target token, without dropout."""

    @tf.function(input_signature=[SIGNATURE], jit_compile=False)  # type: ignore[untyped-decorator]
    def log_probabilities(batch: Batch) -> tf.Tensor:
        with tf.device(device):
            return -cross_entropy(model(batch.source, batch.lengths, batch.words), batch.answers)

    compiled: Computed = log_probabilities
    return compiled


def loss_of(model: Seq2Seq, batch: Batch) -> tf.Tensor:
    """Return the sum of the tokens' cross entropy, divided by the number of sentences."""
    logits = model(batch.source, batch.lengths, batch.words, training=True)
    of_tokens = cross_entropy(logits, batch.answers)
    counted = tf.sequence_mask(batch.target_lengths, tf.shape(batch.answers)[1], of_tokens.dtype)
    return tf.reduce_sum(of_tokens * counted) / tf.cast(tf.shape(batch.source)[0], of_tokens.dtype)


def cross_entropy(logits: tf.Tensor, answers: tf.Tensor) -> tf.Tensor:
    """Return the cross entropy of each target token, (batch, target), in float32 if the logits are in bfloat16."""
    enough = tf.cast(logits, tf.float32) if logits.dtype == tf.bfloat16 else logits
    return tf.nn.sparse_softmax_cross_entropy_with_logits(answers, enough)


def initialize(model: Seq2Seq, seed: int, width: int) -> None:
    """Set the weights drawn from a seed on a model; the attention's scale is already 1."""
    found = parts(model)
    for name, values in initial.weights(seed, width):
        for part, drawn in zip(found[name], np.split(values, len(found[name])), strict=True):
            part.assign(from_torch(name, drawn))


def with_counts(batch: SentencePairs, config: Config) -> tuple[Batch, Consumed]:
    """Return a batch as tensors, and what a step on it consumes."""
    return on_device(batch, config), consumed(batch, "sentences")


def on_device(batch: SentencePairs, config: Config) -> Batch:
    """Return a batch as tensors in TensorFlow's own memory; a plain constant may share numpy's memory."""
    words = np.concatenate([np.full_like(batch.target[:, :1], START), batch.target[:, :-1]], 1)
    with tf.device(device_of(config)):
        arrays = (batch.source, batch.source_lengths, words, batch.target, batch.target_lengths)
        return Batch(*(tf.identity(tf.constant(values, tf.int32)) for values in arrays))
