"""ResNet-50 is one network in every framework: in float64, at 64 pixels, figures agree to rounding."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import mxnet as mx
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tbdprof import suite
from tbdprof.suite.resnet50 import SPEC, on_mxnet, on_torch
from tbdprof.suite.workload import Config

Array = NDArray[np.float64]
GLUON_KINDS = {"gamma": "weight", "beta": "bias", "running_mean": "running_mean", "running_var": "running_var"}
BEFORE = 1e-9
AFTER = 1e-6
UPDATE = 1e-7  # MXNet rounds the optimizer's constants to float32,
STATISTICS = 1e-6  # and batch normalization's 0.9, which leaves less than that of the 0.1
SECOND_UPDATE = 1e-4  # a difference as small may turn a ReLU over: only the median counts


@dataclass(frozen=True)
class Trained:
    """What a network did in two steps; gradients, means and weights by torch's names."""

    loss: float
    scores: Array
    gradients: dict[str, Array]  # of the first step
    means: dict[str, Array]  # running ones, after the first step
    weights: dict[str, Array]  # after the first step
    later_weights: dict[str, Array]  # after the second
    later_loss: float  # after the first step


def config(variant: str = "v1.5") -> Config:
    return suite.configure(SPEC, batch_size=4, precision="fp64", seed=1, options={"variant": variant, "image_size": 64})


def train_torch(workload: on_torch.Workload) -> Trained:
    model = workload.model

    def values(prefix: str = "") -> dict[str, Array]:
        named = model.named_buffers() if prefix else model.named_parameters()
        return {name: value.detach().numpy().copy() for name, value in named if prefix in name}

    with torch.no_grad():
        scores = model(workload.inputs[0]).numpy()
    loss = workload.loss().item()
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.reset_running_stats()  # MXNet's move in the backward pass alone
    workload.step()
    gradients = {name: parameter.grad.numpy().copy() for name, parameter in model.named_parameters()}
    means, weights = values("running_mean"), values()
    later_loss = workload.loss().item()
    workload.step()
    return Trained(loss, scores, gradients, means, weights, values(), later_loss)


def train_mxnet(workload: on_mxnet.Workload) -> Trained:
    parameters = {torch_name(name): value for name, value in workload.model._collect_params_with_prefix().items()}
    trainable = {name: value for name, value in parameters.items() if value.grad_req != "null"}

    def loss() -> float:
        with mx.autograd.train_mode():
            return float(workload.loss().asscalar())

    with mx.autograd.train_mode():
        scores = workload.model(workload.inputs[0]).asnumpy()
    first_loss = loss()
    workload.step()
    gradients = {name: value.grad().asnumpy() for name, value in trainable.items()}
    means = {name: value.data().asnumpy() for name, value in parameters.items() if "running_mean" in name}
    weights = {name: value.data().asnumpy() for name, value in trainable.items()}
    later_loss = loss()
    workload.step()
    later_weights = {name: value.data().asnumpy() for name, value in trainable.items()}
    return Trained(first_loss, scores, gradients, means, weights, later_weights, later_loss)


def torch_name(name: str) -> str:
    layer, _, kind = name.rpartition(".")
    return f"{layer}.{GLUON_KINDS.get(kind, kind)}"


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


@pytest.fixture(scope="module")
def in_mxnet() -> Trained:
    return train_mxnet(on_mxnet.build(SPEC, config()))


@pytest.mark.parametrize("variant", ["v1.5", "v1"])
def test_torch_and_mxnet_train_one_network(variant: str, in_mxnet: Trained) -> None:
    of_mxnet = in_mxnet if variant == "v1.5" else train_mxnet(on_mxnet.build(SPEC, config(variant)))
    of_torch = train_torch(on_torch.build(SPEC, config(variant)))

    assert len(of_torch.gradients) == 161
    assert disagreements(of_torch, of_mxnet) == {}


def misplace_a_stride(workload: on_torch.Workload) -> None:
    block = workload.model.layer4[0]
    block.conv1.stride, block.conv2.stride = (2, 2), (1, 1)


def widen_an_epsilon(workload: on_torch.Workload) -> None:
    workload.model.layer2[1].bn2.eps = 1.1e-5


def slow_a_running_mean(workload: on_torch.Workload) -> None:
    workload.model.bn1.momentum = 0.09


def forget_the_weight_decay(workload: on_torch.Workload) -> None:
    workload.optimizer.param_groups[0]["weight_decay"] = 0.0


def forget_the_momentum(workload: on_torch.Workload) -> None:
    workload.optimizer.param_groups[0]["momentum"] = 0.0


@pytest.mark.parametrize(
    ("plant", "seen_in"),
    [
        (misplace_a_stride, {"loss", "scores", "gradients", "weights", "later_loss"}),
        (widen_an_epsilon, {"loss", "scores", "gradients"}),
        (slow_a_running_mean, {"means"}),
        (forget_the_weight_decay, {"weights"}),
        (forget_the_momentum, {"later_weights"}),
    ],
)
def test_a_planted_mistake_is_caught(
    plant: Callable[[on_torch.Workload], None], seen_in: set[str], in_mxnet: Trained
) -> None:
    workload = on_torch.build(SPEC, config())
    plant(workload)

    assert seen_in <= set(disagreements(train_torch(workload), in_mxnet))
