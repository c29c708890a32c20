"""What WGAN-GP's networks do in two steps of each, in every framework, by torch's names and in its layout."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import mxnet as mx
import numpy as np
import tensorflow as tf
import torch
from numpy.typing import NDArray

from tbdprof.suite.data.inputs import Pictures
from tbdprof.suite.wgan import on_mxnet, on_tensorflow, on_torch
from tbdprof.suite.wgan.architecture import NOISE
from tbdprof.suite.wgan.pictures import synthetic

Array = NDArray[np.float64]
NETWORKS = ("generator", "critic")
KINDS = {"gamma": "weight", "beta": "bias", "kernel": "weight", "weight": "weight", "bias": "bias"}
BATCH = 2


@dataclass(frozen=True)
class Given:
    """What a step is made of, in float64."""

    real: Array
    noise: Array
    coefficients: Array


@dataclass(frozen=True)
class Trained:
    """What the networks did in two steps of each; gradients and updates by torch's names and in its layout."""

    scores: Array
    made: Array
    losses: dict[str, float]
    gradients: dict[str, Array]  # of each network's own loss, at the initial weights
    updates: dict[str, Array]  # of the first step of each
    later_losses: dict[str, float]  # after both of those
    later_updates: dict[str, Array]  # of the second


def given() -> Given:
    random = np.random.default_rng(7)
    real = synthetic(BATCH, 1).images.astype(np.float64)
    return Given(real, random.standard_normal((BATCH, NOISE)), random.random((BATCH, 1, 1, 1)))


def train_torch(workload: on_torch.Workload) -> Trained:
    own = given()
    real, noise, coefficients = (torch.from_numpy(each) for each in (own.real, own.noise, own.coefficients))
    named = {
        f"{network}.{name}": parameter
        for network, model in zip(NETWORKS, workload.model, strict=True)
        for name, parameter in model.named_parameters()
    }

    def losses() -> list[torch.Tensor]:
        return [workload.generator_loss(noise), workload.critic_loss(real, noise, coefficients)]

    def weights() -> dict[str, Array]:
        return {name: parameter.detach().numpy().copy() for name, parameter in named.items()}

    scores, made = answers(workload, own)
    first = losses()
    gradients: dict[str, Array] = {}
    for network, model, loss in zip(NETWORKS, workload.model, first, strict=True):
        mine = {name: parameter for name, parameter in named.items() if name.startswith(network)}
        found = torch.autograd.grad(loss, list(model.parameters()))
        gradients |= {name: gradient.numpy() for name, gradient in zip(mine, found, strict=True)}
    history, later = two_steps(workload, (real, noise, coefficients), weights, losses)
    return trained(scores, made, first, gradients, history, later)


def train_mxnet(workload: on_mxnet.Workload) -> Trained:
    own = given()
    real, noise, coefficients = (mx.nd.array(each, dtype="float64") for each in (own.real, own.noise, own.coefficients))
    named = {
        f"{network}.{torch_name(name)}": parameter
        for network, model in zip(NETWORKS, workload.model, strict=True)
        for name, parameter in model._collect_params_with_prefix().items()
        if parameter.grad_req != "null"
    }

    def losses() -> list[mx.nd.NDArray]:
        return [workload.generator_loss(noise), workload.critic_loss(real, noise, coefficients)]

    def weights() -> dict[str, Array]:
        return {name: parameter.data().asnumpy() for name, parameter in named.items()}

    scores, made = answers(workload, own)
    gradients: dict[str, Array] = {}
    first = []
    for number, network in enumerate(NETWORKS):
        with mx.autograd.record():
            loss = losses()[number]
        loss.backward()
        first.append(loss)
        gradients |= {name: value.grad().asnumpy() for name, value in named.items() if name.startswith(network)}
    with mx.autograd.train_mode():
        history, later = two_steps(workload, (real, noise, coefficients), weights, losses)
    return trained(scores, made, first, gradients, history, later)


def train_tensorflow(workload: on_tensorflow.Workload) -> Trained:
    own = given()
    real = tf.constant(own.real.transpose(0, 2, 3, 1))
    noise, coefficients = tf.constant(own.noise), tf.constant(own.coefficients)
    generator, critic = workload.model
    variables = [variable for model in workload.model for variable in model.trainable_variables]

    def losses() -> list[tf.Tensor]:
        return [
            on_tensorflow.generator_loss(generator, critic, noise),
            on_tensorflow.critic_loss(critic, real, generator(noise), coefficients),
        ]

    def named(values: Iterable[tf.Tensor]) -> dict[str, Array]:
        return dict(
            to_torch(variable.path, np.asarray(value)) for variable, value in zip(variables, values, strict=True)
        )

    def weights() -> dict[str, Array]:
        return named(variable.numpy() for variable in variables)

    scores, made = answers(workload, own)
    with tf.GradientTape(persistent=True) as tape:
        first = losses()
    found = [
        gradient
        for loss, model in zip(first, workload.model, strict=True)
        for gradient in tape.gradient(loss, model.trainable_variables)
    ]
    history, later = two_steps(workload, (real, noise, coefficients), weights, losses)
    return trained(scores, made, first, named(found), history, later)


def answers(workload: Any, own: Given) -> tuple[Array, Array]:
    """Return the scores of the real pictures and what is made of the noise, as a learner answers."""
    return workload.predict(Pictures(own.real)), workload.predict(own.noise)


def two_steps(
    workload: object,
    arrays: Sequence[object],
    weights: Callable[[], dict[str, Array]],
    losses: Callable[[], list[object]],
) -> tuple[list[dict[str, Array]], list[object]]:
    """Train both networks twice; return the weights before and after each time, and the losses after the first."""
    history, later = [weights()], []
    for _ in range(2):
        workload.critic_step(*arrays)
        workload.generator_step(arrays[1])
        history.append(weights())
        later = later or losses()
    return history, later


def trained(
    scores: Array,
    made: Array,
    first: Iterable[object],
    gradients: dict[str, Array],
    history: list[dict[str, Array]],
    later: Iterable[object],
) -> Trained:
    """Return what was done, from the losses, the weights before and after each of two steps, and the rest."""
    updates, later_updates = (
        {name: after[name] - before[name] for name in before} for before, after in pairwise(history)
    )
    return Trained(scores, made, numbers(first), gradients, updates, numbers(later), later_updates)


def numbers(losses: Iterable[object]) -> dict[str, float]:
    return {network: float(np.asarray(loss_value(loss))) for network, loss in zip(NETWORKS, losses, strict=True)}


def loss_value(loss: object) -> object:
    if isinstance(loss, torch.Tensor):
        return loss.item()
    return loss.asscalar() if isinstance(loss, mx.nd.NDArray) else loss


def torch_name(name: str) -> str:
    layer, _, kind = name.rpartition(".")
    return f"{layer}.{KINDS[kind]}"


def to_torch(path: str, value: Array) -> tuple[str, Array]:
    """Return a Keras variable's name and value as torch has them: flattened maps have their channels first there."""
    name = torch_name(path.replace("/", "."))
    if name.startswith("generator.dense"):
        return name, np.moveaxis(value.reshape(-1, 16, value.shape[-1] // 16), 0, -1).swapaxes(0, 1).reshape(
            (-1, NOISE) if value.ndim == 2 else -1
        )
    if name == "critic.dense.weight":
        return name, value.reshape(16, -1).T.reshape(1, -1)
    return name, value.transpose(3, 2, 0, 1) if value.ndim == 4 else value
