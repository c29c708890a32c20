"""What the Transformer does in two steps, in every framework, by torch's names and in its layout."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any

import mxnet as mx
import numpy as np
import tensorflow as tf
import torch
from numpy.typing import NDArray

from tbdprof.suite.data.inputs import SentencePairs
from tbdprof.suite.transformer import on_mxnet, on_tensorflow, on_torch
from tbdprof.suite.transformer.sentences import batches
from tbdprof.suite.workload import PERIOD, Config

Array = NDArray[np.float64]
KINDS = {"gamma": "weight", "beta": "bias", "kernel": "weight", "embeddings": "weight"}
TIED = "scores.weight"  # another name of MXNet's for the embedding's weight


@dataclass(frozen=True)
class Trained:
    """What a network did in two steps; gradients and updates by torch's names and in its layout."""

    predicted: Array  # the logarithm of the probability of each target word, at padding too
    loss: float
    gradients: dict[str, Array]
    updates: dict[str, Array]
    later_loss: float
    later_updates: dict[str, Array]


def pairs(config: Config) -> SentencePairs:
    """Return the batch of most sentences, some of them filled up on either side."""
    batch = max(islice(batches(config), PERIOD), key=lambda each: len(each.source))
    assert (batch.source_lengths < batch.source.shape[1]).any()
    assert (batch.target_lengths < batch.target.shape[1]).any()
    return batch


def train_torch(workload: on_torch.Workload) -> Trained:
    batch = on_torch.on_device(pairs(workload.config), workload.config)
    named = dict(workload.model.named_parameters())
    predicted, loss = workload.predict(pairs(workload.config)), workload.loss(batch)
    found = torch.autograd.grad(loss, list(named.values()))

    def weights() -> dict[str, Array]:
        return {name: parameter.detach().numpy().copy() for name, parameter in named.items()}

    return trained(
        predicted,
        loss.item(),
        {name: gradient.numpy() for name, gradient in zip(named, found, strict=True)},
        lambda: workload.train_step(batch),
        weights,
        lambda: workload.loss(batch).item(),
    )


def train_mxnet(workload: on_mxnet.Workload) -> Trained:
    batch = on_mxnet.on_device(pairs(workload.config), workload.config)
    named = {
        torch_name(name): parameter
        for name, parameter in workload.model._collect_params_with_prefix().items()
        if parameter.grad_req != "null" and name != TIED
    }
    predicted = workload.predict(pairs(workload.config))
    with mx.autograd.record():
        loss = workload.loss(batch)
    loss.backward()
    return trained(
        predicted,
        float(loss.asscalar()),
        {name: parameter.grad().asnumpy() for name, parameter in named.items()},
        lambda: workload.train_step(batch),
        lambda: {name: parameter.data().asnumpy() for name, parameter in named.items()},
        lambda: float(workload.loss(batch).asscalar()),
    )


def train_tensorflow(workload: on_tensorflow.Workload) -> Trained:
    batch = on_tensorflow.on_device(pairs(workload.config), workload.config)
    variables = workload.model.trainable_variables

    def loss_now() -> tf.Tensor:
        scores = workload.model(*batch.network, training=True)
        return on_tensorflow.loss_of(scores, batch.target, batch.asked)

    predicted = workload.predict(pairs(workload.config))
    with tf.GradientTape() as tape:
        loss = loss_now()
    found = tape.gradient(loss, variables)
    assert all(isinstance(each, tf.Tensor) for each in found)  # and no rows of one
    return trained(
        predicted,
        float(loss),
        dict(to_torch(*each) for each in zip(variables, found, strict=True)),
        lambda: workload.train_step(*batch.all),
        lambda: dict(to_torch(each, each.value) for each in variables),
        lambda: float(loss_now()),
    )


def trained(
    predicted: Array,
    loss: float,
    gradients: dict[str, Array],
    train: Callable[[], object],
    weights: Callable[[], dict[str, Array]],
    loss_now: Callable[[], float],
) -> Trained:
    """Train twice and return what was done."""
    history = [weights()]
    train()
    history.append(weights())
    later_loss = loss_now()
    train()
    history.append(weights())
    updates, later_updates = (
        {name: after[name] - before[name] for name in before} for before, after in pairwise(history)
    )
    return Trained(predicted, loss, gradients, updates, later_loss, later_updates)


def torch_name(name: str) -> str:
    layer, _, kind = name.rpartition(".")
    return f"{layer}.{KINDS.get(kind, kind)}"


def to_torch(variable: Any, value: Any) -> tuple[str, Array]:
    """Return the name and the value of a Keras variable as torch has them."""
    _, *path = variable.path.split("/")
    name = torch_name(".".join(path).replace("encoder_", "encoder.").replace("decoder_", "decoder."))
    array: Array = tf.convert_to_tensor(value).numpy()  # numpy 2 warns of Keras' variables
    return name, array.T if variable.path.endswith("/kernel") else array
