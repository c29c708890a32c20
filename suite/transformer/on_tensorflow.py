"""The Transformer in TensorFlow's Keras; its network is in `on_tensorflow_network`. A step is one traced function."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from math import sqrt
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from tensorflow import keras

from tbdprof.facts.consumed import Consumed
from tbdprof.suite.data.inputs import SentencePairs, feed
from tbdprof.suite.data.text.translation import consumed
from tbdprof.suite.initial import Weights
from tbdprof.suite.on_tensorflow import device_of, dtype_of, policy_of, traced
from tbdprof.suite.transformer import ADAM_EPSILON, BETAS, SMOOTHING, dropout, initial
from tbdprof.suite.transformer.architecture import sizes_of
from tbdprof.suite.transformer.on_tensorflow_network import Transformer
from tbdprof.suite.transformer.sentences import PLACES, batches, filled, given, greedily, later
from tbdprof.suite.workload import PERIOD, Config, Spec

_HIDDEN = -1e9  # added to an attention's score, after which its exponential is 0

Step = Callable[..., tf.Tensor]


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch on the device."""

    source: tf.Tensor  # (batch, source)
    hidden: tf.Tensor  # (batch, 1, 1, source): what hides the padding
    given: tf.Tensor  # (batch, target): what the decoder is given
    later: tf.Tensor  # (1, 1, target, target): what hides the words after each
    target: tf.Tensor  # (batch, target): what it is to answer
    asked: tf.Tensor  # (batch, target): 1 where an answer counts, 0 at padding
    consumed: Consumed

    @property
    def network(self) -> tuple[tf.Tensor, ...]:
        """The arguments of the network."""
        return self.source, self.hidden, self.given, self.later

    @property
    def all(self) -> tuple[tf.Tensor, ...]:
        """The arguments of a training step."""
        return *self.network, self.target, self.asked


@dataclass(frozen=True, slots=True)
class Workload:
    """The Transformer and the sentences it is trained on."""

    spec: Spec
    config: Config
    model: Transformer
    optimizer: keras.optimizers.Adam
    inputs: tuple[tf.Tensor, ...]  # those of the synthetic batches
    batches: Iterator[Batch]
    train_step: Step  # of all of a batch: trains once, returns the loss before
    scores: Step  # of what the network is given

    def step(self) -> Consumed:
        """Train on the next batch once; return what it consumed."""
        batch = next(self.batches)
        self.train_step(*batch.all)
        return batch.consumed

    def train(self, batch: SentencePairs) -> float:
        """Train on a batch once; return its loss before the update."""
        return float(self.train_step(*on_device(batch, self.config).all))

    def predict(self, inputs: SentencePairs) -> NDArray[Any]:
        """Return the log-probability of each target word, (batch, target), given the true words before it."""
        batch = on_device(inputs, self.config)
        log_probabilities = tf.nn.log_softmax(self.scores(*batch.network))
        answer: NDArray[Any] = tf.gather(log_probabilities, batch.target, batch_dims=2).numpy()
        return answer

    def translate(self, source: NDArray[Any], source_lengths: NDArray[Any], longest: int) -> NDArray[Any]:
        """Return greedy translations of up to `longest` words, (batch, words)."""

        def likeliest(pairs: SentencePairs) -> NDArray[Any]:
            chosen: NDArray[Any] = tf.argmax(self.scores(*on_device(pairs, self.config).network), 2).numpy()
            return chosen

        return greedily(likeliest, source, source_lengths, longest)


class Schedule(keras.optimizers.schedules.LearningRateSchedule):  # type: ignore[misc]
    """The learning rate of each step: `tbdprof.suite.transformer.learning_rate` in TensorFlow's operators."""

    def __init__(self, width: int, warmup: int) -> None:
        self.width, self.warmup = width, warmup

    def __call__(self, steps: tf.Tensor) -> tf.Tensor:
        """Return the learning rate after this number of steps."""
        step = tf.cast(steps + 1, tf.float32)
        return tf.minimum(tf.math.rsqrt(step), step / (self.warmup * sqrt(self.warmup))) / sqrt(self.width)


def build(spec: Spec, config: Config) -> Workload:
    """Return the Transformer with its initial weights, its optimizer and its batches on the device."""
    device, sizes, dtype = device_of(config), sizes_of(config.options), dtype_of(config)
    words, mask = keras.Input((None,), dtype="int32"), keras.Input((1, None, None), dtype=dtype.name)
    with tf.device(device):
        model = Transformer(sizes, dropout(config.options), config.seed, policy_of(config))
        model(words, mask, words, mask)  # creates the weights without computing anything
        initialize(model, initial.weights(config.seed, sizes))
        schedule = Schedule(sizes.width, int(config.options["rise"]))
        optimizer = keras.optimizers.Adam(schedule, *BETAS, ADAM_EPSILON)
        optimizer.build(model.trainable_variables)
    synthetic = config.data is None
    own = feed(batches(config), partial(on_device, config=config), kept=PERIOD * synthetic)
    kept = [next(own) for _ in range(PERIOD * synthetic)]  # once around
    inputs = tuple(tensor for each in kept for tensor in each.all)
    train = train_step(model, optimizer, config)
    return Workload(spec, config, model, optimizer, inputs, own, train, scoring(model, device, dtype))


def train_step(model: Transformer, optimizer: keras.optimizers.Adam, config: Config) -> Step:
    """Return the function that trains once on a batch of any size and returns its loss before the update."""

    @traced(config, input_signature=signature(dtype_of(config)))
    def step(
        source: tf.Tensor, hidden: tf.Tensor, given: tf.Tensor, later: tf.Tensor, target: tf.Tensor, asked: tf.Tensor
    ) -> tf.Tensor:
        with tf.device(device_of(config)):
            with tf.GradientTape() as tape:
                loss = loss_of(model(source, hidden, given, later, training=True), target, asked)
            # The embedding's is rows from its lookups and whole from the scores: the tape makes all whole to add them.
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply(gradients, model.trainable_variables)
            return loss

    return step


def scoring(model: Transformer, device: str, dtype: tf.DType) -> Step:
    """Return the function that scores the words of a batch of any size, without dropout."""

    @tf.function(jit_compile=False, input_signature=signature(dtype)[:4])  # type: ignore[untyped-decorator]
    def scores(source: tf.Tensor, hidden: tf.Tensor, given: tf.Tensor, later: tf.Tensor) -> tf.Tensor:
        with tf.device(device):
            return tf.cast(model(source, hidden, given, later, training=False), dtype)

    compiled: Step = scores
    return compiled


def signature(dtype: tf.DType) -> tuple[tf.TensorSpec, ...]:
    """Return the shapes of a training step's arguments: any number of sentences of any length."""
    words, mask = tf.TensorSpec((None, None), tf.int32), tf.TensorSpec((None, 1, None, None), dtype)
    return words, mask, words, mask, words, tf.TensorSpec((None, None), dtype)


def loss_of(scores: tf.Tensor, target: tf.Tensor, asked: tf.Tensor) -> tf.Tensor:
    """Return the mean cross entropy of the target words, with label smoothing."""
    spread = SMOOTHING / scores.shape[-1]
    labels = tf.one_hot(target, scores.shape[-1], 1 - SMOOTHING + spread, spread, dtype=asked.dtype)
    each = tf.nn.softmax_cross_entropy_with_logits(labels, tf.cast(scores, asked.dtype))
    return tf.reduce_sum(each * asked) / tf.reduce_sum(asked)


def initialize(model: Transformer, weights: Weights) -> None:
    """Set the weights drawn for a model; all other parameters already have their initial values."""
    variables = {variable.path: variable for variable in model.trainable_variables}
    for name, values in weights:
        path = keras_path(name)
        variables[path].assign(values if path.endswith("/embeddings") else values.T)
    model.positions.assign(initial.positions(PLACES, model.sizes.width))


def keras_path(name: str) -> str:
    """Return Keras' path of a weight: `encoder.0.inner.weight` is `transformer/encoder_0/inner/kernel`."""
    *layers, _ = name.split(".")
    if layers == ["embedding"]:
        return "transformer/embedding/embeddings"
    side, number, *inside = layers
    return "/".join(("transformer", f"{side}_{number}", *inside, "kernel"))


def on_device(batch: SentencePairs, config: Config) -> Batch:
    """Return a batch as tensors in TensorFlow's own memory; a plain constant may share numpy's memory."""
    dtype, longest = dtype_of(config), batch.target.shape[1]
    asked = filled(batch.target_lengths, longest)
    padding = ~filled(batch.source_lengths, batch.source.shape[1])
    with tf.device(device_of(config)):
        return Batch(
            words(batch.source),
            tf.cast(padding[:, None, None], dtype) * _HIDDEN,
            words(given(batch.target)),
            tf.cast(later(longest)[None, None], dtype) * _HIDDEN,
            words(batch.target),
            tf.cast(asked, dtype),
            consumed(batch, "tokens"),
        )


def words(numbers: NDArray[np.int32]) -> tf.Tensor:
    """Return word numbers as a tensor."""
    return tf.cast(tf.cast(numbers, tf.int64), tf.int32)
