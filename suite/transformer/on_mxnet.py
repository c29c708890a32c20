"""The Transformer in MXNet's Gluon; its network is in `on_mxnet_network`."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from numpy.typing import NDArray

from tbdprof.facts.consumed import Consumed
from tbdprof.suite.data.inputs import SentencePairs, feed
from tbdprof.suite.data.text.translation import consumed
from tbdprof.suite.initial import Weights
from tbdprof.suite.on_mxnet import check_precision, context_of, dtype_of, hybridize
from tbdprof.suite.transformer import ADAM_EPSILON, BETAS, SMOOTHING, dropout, initial, learning_rate
from tbdprof.suite.transformer.architecture import Sizes, sizes_of
from tbdprof.suite.transformer.on_mxnet_network import Transformer
from tbdprof.suite.transformer.sentences import batches, filled, given, greedily, later
from tbdprof.suite.workload import PERIOD, Config, Spec

_HIDDEN = -1e9  # added to an attention's score, after which its exponential is 0


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch on the device."""

    source: mx.nd.NDArray  # (batch, source)
    hidden: mx.nd.NDArray  # (batch, 1, 1, source): what hides the padding
    given: mx.nd.NDArray  # (batch, target): what the decoder is given
    later: mx.nd.NDArray  # (1, 1, target, target): what hides the words after each
    target: mx.nd.NDArray  # (batch, target): what it is to answer
    asked: mx.nd.NDArray  # (batch, target): 1 where an answer counts, 0 at padding
    consumed: Consumed


@dataclass(frozen=True, slots=True)
class Workload:
    """The Transformer and the sentences it is trained on."""

    spec: Spec
    config: Config
    model: Transformer
    optimizer: gluon.Trainer
    inputs: tuple[mx.nd.NDArray, ...]  # those of the synthetic batches
    batches: Iterator[Batch]

    def step(self) -> Consumed:
        """Train on the next batch once; return what it consumed."""
        batch = next(self.batches)
        self.train_step(batch)
        return batch.consumed

    def train_step(self, batch: Batch) -> mx.nd.NDArray:
        """Train on a batch once; return its loss before the update."""
        with autograd.record():
            loss = self.loss(batch)
        loss.backward()
        self.optimizer.step(1)  # the loss is a mean already
        return loss

    def loss(self, batch: Batch) -> mx.nd.NDArray:
        """Return the mean cross entropy of the target words, with label smoothing."""
        log_probabilities = mx.nd.log_softmax(self.scores(batch))
        of_targets, of_all = mx.nd.pick(log_probabilities, batch.target), log_probabilities.mean(axis=2)
        each = (SMOOTHING - 1) * of_targets - SMOOTHING * of_all
        return (each * batch.asked).sum() / batch.asked.sum()

    def scores(self, batch: Batch) -> mx.nd.NDArray:
        """Return the scores of each next word, (batch, target, vocabulary)."""
        return self.model(batch.source, batch.hidden, batch.given, batch.later)

    def train(self, batch: SentencePairs) -> float:
        """Train on a batch once; return its loss before the update."""
        return float(self.train_step(on_device(batch, self.config)).asscalar())

    def predict(self, inputs: SentencePairs) -> NDArray[Any]:
        """Return the log-probability of each target word, (batch, target), given the true words before it."""
        batch = on_device(inputs, self.config)
        answer: NDArray[Any] = mx.nd.pick(mx.nd.log_softmax(self.scores(batch)), batch.target).asnumpy()
        return answer

    def translate(self, source: NDArray[Any], source_lengths: NDArray[Any], longest: int) -> NDArray[Any]:
        """Return greedy translations of up to `longest` words, (batch, words)."""

        def likeliest(pairs: SentencePairs) -> NDArray[Any]:
            chosen: NDArray[Any] = self.scores(on_device(pairs, self.config)).argmax(2).asnumpy()
            return chosen

        return greedily(likeliest, source, source_lengths, longest)


class Schedule(mx.lr_scheduler.LRScheduler):  # type: ignore[misc]
    """The learning rate of each step."""

    def __init__(self, width: int, warmup: int) -> None:
        super().__init__()
        self.width, self.warmup = width, warmup

    def __call__(self, updates: int) -> float:
        """Return the learning rate of a step, counted from 1; MXNet also asks for that of step 0 beforehand."""
        return learning_rate(max(1, updates), self.width, self.warmup)


def build(spec: Spec, config: Config) -> Workload:
    """Return the Transformer with its initial weights, its optimizer and its batches on the device."""
    check_precision(spec, config)
    sizes, share = sizes_of(config.options), dropout(config.options)
    model = Transformer(sizes, share, dtype_of(config))
    initialize(model, initial.weights(config.seed, sizes), config)
    hybridize(model, config)
    optimizer = adam(model, sizes, int(config.options["rise"]))
    synthetic = config.data is None
    own = feed(batches(config), partial(on_device, config=config), kept=PERIOD * synthetic)
    kept = [next(own) for _ in range(PERIOD * synthetic)]  # once around
    inputs = tuple(
        array for each in kept for array in (each.source, each.hidden, each.given, each.later, each.target, each.asked)
    )
    return Workload(spec, config, model, optimizer, inputs, own)


def adam(model: Transformer, sizes: Sizes, warmup: int) -> gluon.Trainer:
    """Return the optimizer of a model."""
    beta1, beta2 = BETAS
    schedule = Schedule(sizes.width, warmup)
    settings = {"beta1": beta1, "beta2": beta2, "epsilon": ADAM_EPSILON, "lr_scheduler": schedule}
    settings["learning_rate"] = schedule.base_lr  # is not used, but MXNet warns of another one than the schedule's
    return gluon.Trainer(model.collect_params(), "adam", settings)


def initialize(model: Transformer, weights: Weights, config: Config) -> None:
    """Set the drawn weights on a new model, normalization scales to 1, and all other parameters to 0."""
    place = placement(config)
    model.cast(place["dtype"])
    model.initialize(mx.init.Zero(), ctx=place["ctx"])
    parameters = model._collect_params_with_prefix()  # noqa: SLF001 - the only way to structural names
    for name, values in weights:
        parameters[name].set_data(mx.nd.array(values))
    _, places, width = model.positions.shape
    model.positions.set_data(mx.nd.array(initial.positions(places, width)[None], dtype=place["dtype"]))


def on_device(batch: SentencePairs, config: Config) -> Batch:
    """Return a batch as arrays on the device."""
    place = placement(config)
    longest = batch.target.shape[1]
    asked = filled(batch.target_lengths, longest)
    padding = ~filled(batch.source_lengths, batch.source.shape[1])
    return Batch(
        words(batch.source, config),
        mx.nd.array(_HIDDEN * padding[:, None, None], **place),
        words(given(batch.target), config),
        mx.nd.array(_HIDDEN * later(longest)[None, None], **place),
        words(batch.target, config),
        mx.nd.array(asked, **place),
        consumed(batch, "tokens"),
    )


def words(numbers: NDArray[np.int32], config: Config) -> mx.nd.NDArray:
    """Return word numbers as an array on the device."""
    return mx.nd.array(numbers, ctx=context_of(config), dtype="int32")


def placement(config: Config) -> dict[str, Any]:
    """Return the device and the data type of a run's arrays."""
    return {"ctx": context_of(config), "dtype": dtype_of(config)}
