"""Seq2Seq trained for two steps in each framework, as numbers that can be compared."""

from dataclasses import dataclass
from typing import Any

import mxnet as mx
import numpy as np
import tensorflow as tf
from mxnet import autograd
from numpy.typing import NDArray

from tbdprof.suite.data.inputs import END, SentencePairs
from tbdprof.suite.seq2seq import on_mxnet, on_mxnet_network, on_tensorflow, on_tensorflow_network, on_torch
from tbdprof.suite.seq2seq.on_torch_network import parts

Array = NDArray[np.floating[Any]]

SCALE = "decoder.scale"


@dataclass(frozen=True)
class Trained:
    """What two steps on a batch came to."""

    predicted: Array  # log-probabilities of the target's tokens, before
    loss: float
    gradients: dict[str, Array]  # before they are clipped
    later_loss: float


def pairs(sources: list[list[int]], targets: list[list[int]], longer: int = 0, filled: int = END) -> SentencePairs:
    """Return sentences filled up to the longest of their side, and some places longer."""
    lengths = [np.array([len(each) for each in side], np.int32) for side in (sources, targets)]
    padded = []
    for side in (sources, targets):
        width = max(map(len, side)) + longer
        padded.append(np.array([[*each, *[filled] * (width - len(each))] for each in side], np.int32))
    return SentencePairs(padded[0], lengths[0], padded[1], lengths[1])


SOURCES = [[5, 17, 9, 40, 3], [8, 6], [7, 11, 4, 5]]
TARGETS = [[12, 9, END], [4, 30, 8, 6, 5, END], [21, END]]
BATCH = pairs(SOURCES, TARGETS)


def counted(predicted: Array, batch: SentencePairs) -> Array:
    """Return what stands at words, without padding."""
    return predicted[np.arange(predicted.shape[1]) < batch.target_lengths[:, None]]


def train_torch(workload: on_torch.Workload, given: SentencePairs = BATCH) -> Trained:
    """Train torch's."""
    predicted = counted(workload.predict(given), given)
    batch = on_torch.on_device(given, workload.config)
    workload.optimizer.zero_grad()
    workload.loss(batch).backward()
    gradients = {name: joined([part.grad.numpy() for part in each]) for name, each in parts(workload.model).items()}
    gradients[SCALE] = workload.model.decoder.scale.grad.numpy().reshape(1)
    loss = workload.update(batch).item()
    return Trained(predicted, loss, gradients, workload.update(batch).item())


def train_mxnet(workload: on_mxnet.Workload, given: SentencePairs = BATCH) -> Trained:
    """Train MXNet's."""
    predicted = counted(workload.predict(given), given)
    batch = on_mxnet.on_device(given, workload.config)
    with autograd.record():
        workload.loss(batch).backward()
    found = on_mxnet_network.parts(workload.model)
    gradients = {name: joined([part.grad().asnumpy() for part in each]) for name, each in found.items()}
    gradients[SCALE] = workload.model.decoder.step.scale.grad().asnumpy()
    loss = float(workload.update(batch).asscalar())
    later = float(workload.update(batch).asscalar())
    mx.nd.waitall()
    return Trained(predicted, loss, gradients, later)


def train_tensorflow(workload: on_tensorflow.Workload, given: SentencePairs = BATCH) -> Trained:
    """Train TensorFlow's."""
    predicted = counted(workload.predict(given), given)
    batch = on_tensorflow.on_device(given, workload.config)
    weights = workload.model.trainable_variables

    @tf.function  # type: ignore[untyped-decorator]
    def taken() -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            loss = on_tensorflow.loss_of(workload.model, batch)
        found: list[tf.Tensor] = tape.gradient(loss, weights)
        return found

    by_path = {weight.path: gradient.numpy() for weight, gradient in zip(weights, taken(), strict=True)}
    gradients = {
        name: joined([on_tensorflow_network.from_torch(name, by_path[part.path]) for part in each])
        for name, each in on_tensorflow_network.parts(workload.model).items()
    }
    gradients[SCALE] = by_path[workload.model.decoder.scale.path].reshape(1)
    loss, later = (float(workload.train_any(batch)) for _ in range(2))
    return Trained(predicted, loss, gradients, later)


def joined(arrays: list[Array]) -> Array:
    """Return gates' rows one after the other."""
    return np.concatenate(arrays)
