"""Seq2Seq in MXNet's Gluon."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon, nd
from numpy.typing import NDArray

from tbdprof.facts.consumed import Consumed
from tbdprof.suite.data.inputs import START, SentencePairs, feed
from tbdprof.suite.data.text.buckets import Sentences
from tbdprof.suite.data.text.corpora import IWSLT15
from tbdprof.suite.data.text.translation import batches, consumed
from tbdprof.suite.on_mxnet import check_precision, context_of, dtype_of, hybridize
from tbdprof.suite.seq2seq import DROPOUT, LARGEST_NORM, initial, learning_rate
from tbdprof.suite.seq2seq.architecture import GATES
from tbdprof.suite.seq2seq.on_mxnet_network import OPEN, SHUT, FusedLayer, Seq2Seq, parts
from tbdprof.suite.workload import PERIOD, Config, Spec


class Batch(NamedTuple):
    """Sentences as MXNet's arrays, time first."""

    source: mx.nd.NDArray  # (source, batch)
    lengths: mx.nd.NDArray  # (batch,) of the source
    words: mx.nd.NDArray  # (target, batch) that the decoder is given
    answers: mx.nd.NDArray  # (target, batch) that it is to give
    counted: mx.nd.NDArray  # (target, batch), 1, and 0 at padding
    consumed: Consumed


@dataclass(frozen=True, slots=True)
class Workload:
    """Seq2Seq and the sentences it is trained on."""

    spec: Spec
    config: Config
    model: Seq2Seq
    optimizer: gluon.Trainer
    inputs: tuple[mx.nd.NDArray, ...]  # those of the synthetic batches, which are reused
    batches: Iterator[Batch]

    def step(self) -> Consumed:
        """Train on the next batch once, without waiting for it; return what it consumed."""
        batch = next(self.batches)
        self.update(batch)
        return batch.consumed

    def train(self, batch: SentencePairs) -> float:
        """Train on a batch once; return its mean loss per target token."""
        loss = self.update(on_device(batch, self.config)).asscalar()
        return float(loss) * len(batch.source) / float(batch.target_lengths.sum())

    def predict(self, inputs: SentencePairs) -> NDArray[np.floating[Any]]:
        """Return the log-probability of each target token, (batch, target), given the true tokens before it."""
        predicted: NDArray[np.floating[Any]] = self.log_probabilities(on_device(inputs, self.config)).asnumpy()
        return predicted.T

    def translate(
        self, source: NDArray[np.int32], source_lengths: NDArray[np.int32], longest: int
    ) -> NDArray[np.int32]:
        """Return greedy translations, (batch, at most `longest`); ignore what follows the first `END` of a row."""
        return self.model.translate(as_array(source.T, self.config), as_array(source_lengths, self.config), longest)

    def update(self, batch: Batch) -> mx.nd.NDArray:
        """Train on a batch once; return its loss before the update."""
        with autograd.record():
            loss = self.loss(batch)
        loss.backward()
        clip([each.grad() for each in self.model.collect_params().values() if each.grad_req != "null"])
        self.optimizer.step(1)  # the loss is of a sentence already
        return loss

    def loss(self, batch: Batch) -> mx.nd.NDArray:
        """Return the sum of the tokens' cross entropy, divided by the number of sentences."""
        return -(self.log_probabilities(batch) * batch.counted).sum() / batch.source.shape[1]

    def log_probabilities(self, batch: Batch) -> mx.nd.NDArray:
        """Return the log-probability of each target token, (target, batch)."""
        logits = self.model(batch.source, batch.lengths, batch.words)
        return nd.pick(nd.log_softmax(logits), batch.answers)


def clip(gradients: list[mx.nd.NDArray]) -> None:
    """Scale gradients down to the largest joint norm allowed; Gluon's own function fails in float64."""
    norm = nd.sqrt(nd.add_n(*(nd.square(nd.norm(gradient)) for gradient in gradients)))
    scale = nd.clip(LARGEST_NORM / norm, 0, 1)
    for gradient in gradients:
        gradient *= scale


def build(spec: Spec, config: Config) -> Workload:
    """Return Seq2Seq with its initial weights, its optimizer and its batches on the device."""
    check_precision(spec, config)
    mx.random.seed(config.seed)  # dropout draws from MXNet's own generator
    width, fused = int(config.options["width"]), config.options["rnn"] == "fused"
    dropout = DROPOUT if config.options["dropout"] == "on" else 0.0
    model = Seq2Seq(width, fused=fused, dropout=dropout, prefix="seq2seq_")
    model.cast(dtype_of(config))
    model.initialize(mx.init.Zero(), ctx=context_of(config))
    initialize(model, config.seed, width)
    hybridize(model, config)  # the encoder's fused layer and the decoder's step: what loops over time cannot be
    trainer = gluon.Trainer(model.collect_params(), "sgd", {"learning_rate": learning_rate(config.batch_size)})
    drawn = batches(config, IWSLT15, Sentences(config.batch_size), PERIOD)
    kept = 0 if config.data else PERIOD
    fed = feed(drawn, partial(on_device, config=config), kept=kept)
    inputs = tuple(array for _ in range(kept) for array in next(fed)[:-1])
    return Workload(spec, config, model, trainer, inputs, fed)


def on_device(batch: SentencePairs, config: Config) -> Batch:
    """Return a batch as MXNet's arrays."""
    words = np.concatenate([np.full_like(batch.target[:, :1], START), batch.target[:, :-1]], 1)
    counted = np.arange(batch.target.shape[1]) < batch.target_lengths[:, None]
    return Batch(
        source=as_array(batch.source.T, config),
        lengths=as_array(batch.source_lengths, config),
        words=as_array(words.T, config),
        answers=as_array(batch.target.T, config),
        counted=as_array(counted.T, config),
        consumed=consumed(batch, "sentences"),
    )


def as_array(values: NDArray[Any], config: Config) -> mx.nd.NDArray:
    """Return numbers, including integers, in the model's data type."""
    return nd.array(values, context_of(config), dtype_of(config))


def initialize(model: Seq2Seq, seed: int, width: int) -> None:
    """Set the weights drawn from a seed on a new model; the attention's scale is already 1."""
    found = parts(model)
    for name, values in initial.weights(seed, width):
        for part, drawn in zip(found[name], np.split(values, len(found[name])), strict=True):
            part.set_data(nd.array(drawn))
    if isinstance(model.encoder.layer, FusedLayer):
        sums = {"input": SHUT, "forget": OPEN, "candidate": 0.0, "output": 0.0}
        model.encoder.layer.at_padding.set_data(nd.array([[sums[gate]] for gate in GATES for _ in range(width)]))
