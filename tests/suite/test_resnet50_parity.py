"""ResNet-50 is one network in every framework: in float64, at 64 pixels, figures agree to rounding."""

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from classifiers import BEFORE, Trained, disagreements, train_mxnet, train_tensorflow, train_torch

from tbdprof import suite
from tbdprof.suite.classifier import WEIGHT_DECAY
from tbdprof.suite.resnet50 import SPEC, on_mxnet, on_tensorflow, on_torch
from tbdprof.suite.workload import Config


def config(variant: str = "v1.5") -> Config:
    return suite.configure(SPEC, batch_size=4, precision="fp64", seed=1, options={"variant": variant, "image_size": 64})


@pytest.fixture(scope="module")
def in_mxnet() -> Trained:
    return train_mxnet(on_mxnet.build(SPEC, config()))


@cache
def in_torch(variant: str = "v1.5") -> Trained:
    return train_torch(on_torch.build(SPEC, config(variant)))


@pytest.mark.parametrize("variant", ["v1.5", "v1"])
def test_torch_and_mxnet_train_one_network(variant: str, in_mxnet: Trained) -> None:
    of_mxnet = in_mxnet if variant == "v1.5" else train_mxnet(on_mxnet.build(SPEC, config(variant)))

    assert len(in_torch(variant).gradients) == 161
    assert disagreements(in_torch(variant), of_mxnet) == {}


def test_torch_and_tensorflow_train_one_network() -> None:
    of_tensorflow = train_tensorflow(on_tensorflow.build(SPEC, config()), WEIGHT_DECAY)

    assert disagreements(of_tensorflow, in_torch()) == {}


def test_tensorflow_has_the_strides_of_variant_v1_too() -> None:
    workload = on_tensorflow.build(SPEC, config("v1"))
    scores, of_torch = workload.model(workload.inputs[0], training=True).numpy(), in_torch("v1").scores

    assert np.abs(scores - of_torch).max() <= BEFORE * np.abs(of_torch).max()


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
