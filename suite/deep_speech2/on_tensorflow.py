"""Deep Speech 2 in TensorFlow's Keras: channels last, one traced function a step."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from tensorflow import keras

from tbdprof.facts.consumed import Consumed
from tbdprof.suite.data.inputs import feed
from tbdprof.suite.data.speech import BINS, BLANK, Utterances
from tbdprof.suite.deep_speech2 import LARGEST_NORM, LEARNING_RATE, MOMENTUM, initial
from tbdprof.suite.deep_speech2.architecture import FEATURES, FILTERS, width_of
from tbdprof.suite.deep_speech2.on_tensorflow_network import DeepSpeech2, Packing
from tbdprof.suite.deep_speech2.packing import consumed, packing
from tbdprof.suite.deep_speech2.utterances import batches
from tbdprof.suite.on_tensorflow import device_of, dtype_of, policy_of, traced
from tbdprof.suite.workload import PERIOD, Config, Spec


class Example(NamedTuple):
    """A batch of utterances as tensors."""

    spectrograms: tf.Tensor
    packing: Packing
    transcripts: tf.Tensor


TrainStep = Callable[[Example], tf.Tensor]
Scores = Callable[[tf.Tensor, Packing], tf.Tensor]


@dataclass(frozen=True, slots=True)
class Workload:
    """Deep Speech 2 and the utterances it is trained on."""

    spec: Spec
    config: Config
    model: DeepSpeech2
    optimizer: keras.optimizers.SGD
    inputs: tuple[tf.Tensor, ...]  # filled if batches are reused, empty otherwise
    batches: Iterator[tuple[Example, Consumed]]
    train_step: TrainStep
    scores: Scores

    def step(self) -> Consumed:
        """Train on the next batch once; return what it consumed."""
        example, counts = next(self.batches)
        self.train_step(example)
        return counts

    def train(self, batch: Utterances) -> float:
        """Train on a batch once; return its loss."""
        return float(self.train_step(on_device(batch, self.config)[0]))

    def predict(self, inputs: Utterances) -> NDArray[Any]:
        """Return the scores of symbols, (times, batch, 29)."""
        example, _ = on_device(inputs, self.config)
        scores = self.scores(example.spectrograms, example.packing)
        answer: NDArray[Any] = tf.cast(scores, dtype_of(self.config)).numpy().swapaxes(0, 1)
        return answer


def build(spec: Spec, config: Config) -> Workload:
    """Return Deep Speech 2 with its initial weights, its optimizer and its batches on the device."""
    kind = (str(config.options["cell"]), str(config.options["rnn"]))
    with tf.device(device_of(config)):
        model = DeepSpeech2(width_of(config.options), *kind, policy_of(config))
        model.build()
        initialize(model, config)
        optimizer = keras.optimizers.SGD(LEARNING_RATE, MOMENTUM)
        optimizer.build(model.trainable_variables)
    kept = PERIOD if config.data is None else 0
    fed = feed(batches(config), partial(on_device, config=config), kept=kept)
    inputs = tuple(tensor for _ in range(kept) for tensor in tf.nest.flatten(next(fed)[0]))
    functions = (train_step(model, optimizer, config), scores(model, config))
    return Workload(spec, config, model, optimizer, inputs, fed, *functions)


def train_step(model: DeepSpeech2, optimizer: keras.optimizers.SGD, config: Config) -> TrainStep:
    """Return the function that trains on a batch once and returns its loss before the update."""

    @traced(config, input_signature=[signature(config, config.batch_size)])
    def step(example: Example) -> tf.Tensor:
        with tf.device(device_of(config)):
            weights = model.trainable_variables
            with tf.GradientTape() as tape:
                loss = ctc_loss(model(example.spectrograms, example.packing, training=True), example)
            gradients, _ = tf.clip_by_global_norm(tape.gradient(loss, weights), LARGEST_NORM)
            optimizer.apply(gradients, weights)
            return loss

    return step


def scores(model: DeepSpeech2, config: Config) -> Scores:
    """Return the function that computes the scores of symbols, (batch, times, 29)."""
    given = signature(config, None)

    @tf.function(input_signature=[given.spectrograms, given.packing], jit_compile=False)  # type: ignore[untyped-decorator]
    def predict(spectrograms: tf.Tensor, packing: Packing) -> tf.Tensor:
        with tf.device(device_of(config)):
            return model(spectrograms, packing)

    compiled: Scores = predict
    return compiled


def signature(config: Config, batch: int | None) -> Example:
    """Return the shapes of a batch, which may have any size if `batch` is None; lengths differ from batch to batch."""
    packed = Packing(
        tf.TensorSpec((batch,), tf.int32), tf.TensorSpec((None, 2), tf.int32), tf.TensorSpec((batch, None), tf.bool)
    )
    spectrograms = tf.TensorSpec((batch, None, BINS), dtype_of(config))
    return Example(spectrograms, packed, tf.TensorSpec((batch, None), tf.int32))


def ctc_loss(scores: tf.Tensor, example: Example) -> tf.Tensor:
    """Return the mean of the utterances' CTC losses from scores (batch, times, 29); the operator has only float32."""
    losses = tf.nn.ctc_loss(
        labels=tf.sparse.from_dense(example.transcripts),  # zeros are padding
        logits=tf.cast(scores, tf.float32),
        label_length=None,
        logit_length=example.packing.lengths,
        logits_time_major=False,
        blank_index=BLANK,
    )
    return tf.reduce_mean(losses)


def on_device(batch: Utterances, config: Config) -> tuple[Example, Consumed]:
    """Return a batch as tensors in TensorFlow's own memory, and what a step on it consumes."""
    packed = packing(batch.frames)
    times, rows = np.divmod(packed.places, len(packed.lengths))
    mask = np.zeros(packed.packed.shape[::-1], bool)
    mask[rows, times] = True
    with tf.device(device_of(config)):
        places = Packing(tf.identity(packed.lengths), tf.cast(np.stack([rows, times], 1), tf.int32), tf.identity(mask))
        spectrograms = tf.cast(batch.spectrograms, dtype_of(config))
        return Example(tf.identity(spectrograms), places, tf.identity(batch.transcripts)), consumed(batch)


def initialize(model: DeepSpeech2, config: Config) -> None:
    """Set the weights drawn from the seed; all other parameters already have their initial values."""
    variables = {variable.path: variable for variable in model.variables}
    cell = str(config.options["cell"])
    for name, values in initial.weights(config.seed, width_of(config.options), cell):
        variables[variable_path(name, config)].assign(from_torch(name, values, cell))


def variable_path(name: str, config: Config) -> str:
    """Return Keras' path of a weight of `initial`."""
    layer, _, part = name.rpartition(".")
    path = f"deep_speech2/{layer.replace('.', '/')}"
    if layer.startswith("conv"):
        return f"{path}/conv/kernel"
    if not layer.startswith("recurrent"):
        return f"{path}/kernel"
    inner = {"gru": "gru_cell", "rnn": "simple_rnn_cell"}[str(config.options["cell"])]
    cell = "cell" if config.options["rnn"] == "cell" else inner
    return f"{path}/{cell}/{'kernel' if part == 'inputs' else 'recurrent_kernel'}"


def from_torch(name: str, values: NDArray[Any], cell: str) -> NDArray[Any]:
    """Return a weight in Keras' order: frequency before time, channels last; a GRU's gates are update, reset, new."""
    if values.ndim == 4:
        return values.transpose(3, 2, 1, 0)
    if not name.startswith("recurrent"):
        return values.T
    if name.startswith("recurrent1.") and name.endswith("inputs"):
        values = values.reshape(-1, FILTERS, FEATURES // FILTERS).transpose(0, 2, 1).reshape(-1, FEATURES)
    if cell == "gru":
        reset, update, new = np.split(values, 3)
        values = np.concatenate([update, reset, new])
    return values.T
