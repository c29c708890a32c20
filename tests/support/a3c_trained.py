"""What two updates of A3C, by steps that were played before, show in each framework; in the names and axes of torch."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mxnet as mx
import numpy as np
import torch
from mxnet import autograd
from numpy.typing import NDArray
from tensorflow import GradientTape

from tbdprof.suite.a3c import on_tensorflow
from tbdprof.suite.a3c.architecture import MAP_SIDE, MAPS
from tbdprof.suite.a3c.rollouts import Rollout
from tbdprof.suite.a3c.training import Workload

Array = NDArray[Any]
STEPS = 5


@dataclass(frozen=True, slots=True)
class Trained:
    """Figures of the first update, before and after it, and of the second one."""

    logits: Array
    values: Array
    loss: float
    gradients: dict[str, Array]  # of the copy, before they are clipped
    updates: dict[str, Array]  # of the shared parameters, the first
    later_loss: float
    later_updates: dict[str, Array]  # the second


def recorded(returned: float = 1.0) -> Rollout:
    """Return steps that nobody played, all of them drawn, with returns within a bound."""
    random = np.random.default_rng(6)
    observations = random.random((STEPS, 4, 84, 84), dtype=np.float32)
    returns = (2 * random.random(STEPS, dtype=np.float32) - 1) * np.float32(returned)
    return Rollout(observations, np.array([0, 5, 2, 2, 3]), returns)


def trained(
    workload: Workload,
    gradients: Callable[[Workload, Rollout], dict[str, Array]],
    parameters: Callable[[Workload], dict[str, Array]],
    rollout: Rollout,
) -> Trained:
    """Train twice by the same steps, on one actor."""
    logits, values = workload.predict(rollout.observations)
    first = parameters(workload)
    found = gradients(workload, rollout)
    loss = workload.train(rollout)
    second = parameters(workload)
    later_loss = workload.train(rollout)
    third = parameters(workload)
    return Trained(
        np.asarray(logits),
        np.asarray(values),
        loss,
        found,
        {name: second[name] - first[name] for name in first},
        later_loss,
        {name: third[name] - second[name] for name in first},
    )


def train_torch(workload: Workload, rollout: Rollout) -> Trained:
    """Train in torch."""
    return trained(workload, _gradients_of_torch, _parameters_of_torch, rollout)


def train_mxnet(workload: Workload, rollout: Rollout) -> Trained:
    """Train in MXNet."""
    return trained(workload, _gradients_of_mxnet, _parameters_of_mxnet, rollout)


def train_tensorflow(workload: Workload, rollout: Rollout) -> Trained:
    """Train in TensorFlow."""
    return trained(workload, _gradients_of_tensorflow, _parameters_of_tensorflow, rollout)


def _parameters_of_torch(workload: Any) -> dict[str, Array]:
    return {name: value.detach().numpy().copy() for name, value in workload.model[0].named_parameters()}


def _gradients_of_torch(workload: Any, rollout: Rollout) -> dict[str, Array]:
    (agent,), copy = workload.agents, workload.model[1]
    found = torch.autograd.grad(agent.loss(rollout), list(copy.parameters()))
    return {name: each.numpy() for (name, _), each in zip(copy.named_parameters(), found, strict=True)}


def _parameters_of_mxnet(workload: Any) -> dict[str, Array]:
    named = workload.model[0]._collect_params_with_prefix()
    return {name: each.data().asnumpy() for name, each in named.items()}


def _gradients_of_mxnet(workload: Any, rollout: Rollout) -> dict[str, Array]:
    (agent,), copy = workload.agents, workload.model[1]
    with autograd.record():
        loss = agent.loss(rollout)
    loss.backward()
    found = {name: each.grad().asnumpy() for name, each in copy._collect_params_with_prefix().items()}
    mx.nd.waitall()
    return found


def _parameters_of_tensorflow(workload: Any) -> dict[str, Array]:
    return {
        _name(each.path): to_torch(_name(each.path), each.numpy()) for each in workload.model[0].trainable_variables
    }


def _gradients_of_tensorflow(workload: Any, rollout: Rollout) -> dict[str, Array]:
    copy = workload.model[1]
    with GradientTape() as tape:
        answers = copy(on_tensorflow.channels_last(rollout.observations, workload.config))
        loss = on_tensorflow.loss_of(*answers, rollout.actions, rollout.returns.astype(np.float64))
    found = tape.gradient(loss, copy.trainable_variables)
    names = [_name(each.path) for each in copy.trainable_variables]
    return {name: to_torch(name, each.numpy()) for name, each in zip(names, found, strict=True)}


def _name(path: str) -> str:
    _, layer, kind = path.split("/")
    return f"{layer}.{'weight' if kind == 'kernel' else kind}"


def to_torch(name: str, values: Array) -> Array:
    """Return a parameter of TensorFlow's in the order of axes it has in torch, columns of flattened maps among them."""
    if name == "dense.weight":
        return values.reshape(MAP_SIDE**2, MAPS, -1).transpose(2, 1, 0).reshape(values.shape[1], -1)
    return values.transpose(3, 2, 0, 1) if values.ndim == 4 else values.T
