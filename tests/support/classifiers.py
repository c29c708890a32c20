"""What a classifier of the suite does in two steps of training in each framework, and how far two are apart."""

from dataclasses import dataclass
from statistics import median
from typing import Any

import mxnet as mx
import numpy as np
import tensorflow as tf
import torch
from numpy.typing import NDArray

Array = NDArray[np.float64]
KINDS = {"gamma": "weight", "beta": "bias", "kernel": "weight", "moving_mean": "running_mean"}
BEFORE = 1e-9
AFTER = 1e-6
UPDATE = 1e-7  # MXNet rounds the optimizer's constants to float32, Keras the learning rate,
STATISTICS = 1e-6  # and MXNet batch normalization's 0.9, which leaves less than that of the 0.1
SECOND_UPDATE = 1e-4  # a difference as small may turn a ReLU over: only the median counts


@dataclass(frozen=True)
class Trained:
    """What a network did in two steps; gradients, means and weights by torch's names and in its layout."""

    loss: float
    scores: Array
    gradients: dict[str, Array]  # of the first step
    means: dict[str, Array]  # running ones, after the first step
    weights: dict[str, Array]  # after the first step
    later_weights: dict[str, Array]  # after the second
    later_loss: float  # after the first step


def train_torch(workload: Any) -> Trained:
    """Take two steps in torch."""
    model: torch.nn.Module = workload.model
    put_out: list[Array] = []
    hook = model.register_forward_hook(lambda _module, _inputs, outputs: put_out.append(torch_scores(outputs)))

    def values(prefix: str = "") -> dict[str, Array]:
        named = model.named_buffers() if prefix else model.named_parameters()
        return {name: value.detach().numpy().copy() for name, value in named if prefix in name}

    loss = workload.update(*workload.inputs).item()
    hook.remove()
    gradients = {name: parameter.grad.numpy().copy() for name, parameter in model.named_parameters()}
    means, weights = values("running_mean"), values()
    later_loss = workload.update(*workload.inputs).item()
    return Trained(loss, put_out[0], gradients, means, weights, values(), later_loss)


def torch_scores(outputs: torch.Tensor | tuple[torch.Tensor, ...]) -> Array:
    """Return one or more classifiers' scores in one array."""
    return np.concatenate([each.detach().numpy() for each in listed(outputs)])


def train_mxnet(workload: Any) -> Trained:
    """Take two steps in MXNet."""
    parameters = {torch_name(name): value for name, value in workload.model._collect_params_with_prefix().items()}
    trainable = {name: value for name, value in parameters.items() if value.grad_req != "null"}
    put_out: list[mx.nd.NDArray] = []
    hook = workload.model.register_forward_hook(lambda _block, _inputs, outputs: put_out.extend(listed(outputs)))
    loss = float(workload.update(*workload.inputs).asscalar())
    hook.detach()
    scores = np.concatenate([each.asnumpy() for each in put_out])
    gradients = {name: value.grad().asnumpy() for name, value in trainable.items()}
    means = {name: value.data().asnumpy() for name, value in parameters.items() if "running_mean" in name}
    weights = {name: value.data().asnumpy() for name, value in trainable.items()}
    later_loss = float(workload.update(*workload.inputs).asscalar())
    later_weights = {name: value.data().asnumpy() for name, value in trainable.items()}
    return Trained(loss, scores, gradients, means, weights, later_weights, later_loss)


def train_tensorflow(workload: Any, weight_decay: float) -> Trained:
    """Take two steps in TensorFlow; the gradients are what the first left in the momentum, which began with zero."""
    model, optimizer = workload.model, workload.optimizer

    def values(variables: list[Any]) -> dict[str, Array]:
        named = {variable.path.removeprefix(f"{model.name}/"): variable.numpy() for variable in variables}
        return {torch_name(path.replace("/", ".")): torch_layout(value) for path, value in named.items()}

    scores = tensorflow_scores(model(workload.inputs[0], training=True))
    for variable in model.non_trainable_variables:
        variable.assign(tf.ones_like(variable) if "variance" in variable.path else tf.zeros_like(variable))
    first = values(model.trainable_variables)
    loss = float(workload.train_step(*workload.inputs))
    moved = [torch_layout(variable.numpy()) / -float(optimizer.learning_rate) for variable in optimizer.momentums]
    gradients = {name: move - weight_decay * weight for (name, weight), move in zip(first.items(), moved, strict=True)}
    means = {name: value for name, value in values(model.non_trainable_variables).items() if "running_mean" in name}
    weights = values(model.trainable_variables)
    later_loss = float(workload.train_step(*workload.inputs))
    return Trained(loss, scores, gradients, means, weights, values(model.trainable_variables), later_loss)


def tensorflow_scores(outputs: Any) -> Array:
    """Return one or more classifiers' scores in one array."""
    return np.concatenate([each.numpy() for each in listed(outputs)])


def listed(outputs: Any) -> list[Any]:
    """Return a model's outputs as a list."""
    return list(outputs) if isinstance(outputs, tuple | list) else [outputs]


def torch_layout(values: Array) -> Array:
    """Return weights of Keras with outputs first, as torch has them."""
    return values.transpose((3, 2, 0, 1)) if values.ndim == 4 else values.T


def torch_name(name: str) -> str:
    """Return torch's name for a parameter of Gluon's or Keras'."""
    layer, _, kind = name.rpartition(".")
    return f"{layer}.{KINDS.get(kind, kind)}"


def differences(one: Trained, other: Trained) -> dict[str, tuple[float, float]]:
    """Return each figure's relative difference and what it may be."""
    return {
        "loss": (abs(one.loss - other.loss) / abs(other.loss), BEFORE),
        "scores": (float(np.abs(one.scores - other.scores).max() / np.abs(other.scores).max()), BEFORE),
        "gradients": (max(distances(one.gradients, other.gradients)), BEFORE),
        "means": (max(distances(one.means, other.means)), STATISTICS),
        "weights": (max(distances(one.weights, other.weights)), UPDATE),
        "later_weights": (median(distances(one.later_weights, other.later_weights)), SECOND_UPDATE),
        "later_loss": (abs(one.later_loss - other.later_loss) / abs(other.later_loss), AFTER),
    }


def distances(ones: dict[str, Array], others: dict[str, Array]) -> list[float]:
    """Return the relative L2 difference of each pair."""
    assert set(ones) == set(others)
    return [float(np.linalg.norm(ones[name] - others[name]) / np.linalg.norm(others[name])) for name in others]


def disagreements(one: Trained, other: Trained) -> dict[str, float]:
    """Return the differences that are too large; one that is no number is."""
    return {name: found for name, (found, allowed) in differences(one, other).items() if not found <= allowed}
