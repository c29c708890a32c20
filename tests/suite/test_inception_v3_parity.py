"""Inception-v3 is one network in every framework: in float64 and without dropout, figures agree to rounding."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from classifiers import BEFORE, Trained, disagreements, train_mxnet, train_tensorflow, train_torch

from tbdprof import suite
from tbdprof.suite.classifier import WEIGHT_DECAY
from tbdprof.suite.data.inputs import image_batch
from tbdprof.suite.inception_v3 import SPEC, on_mxnet, on_tensorflow, on_torch
from tbdprof.suite.workload import Learner

# 299 pixels is the least its auxiliary classifier takes.
CONFIG = suite.configure(SPEC, batch_size=2, precision="fp64", seed=1, options={"dropout": "off"})


@pytest.fixture(scope="module")
def in_torch() -> Trained:
    return train_torch(on_torch.build(SPEC, CONFIG))


def test_torch_and_mxnet_train_one_network(in_torch: Trained) -> None:
    assert disagreements(train_mxnet(on_mxnet.build(SPEC, CONFIG)), in_torch) == {}


@pytest.mark.long
def test_torch_and_tensorflow_train_one_network(in_torch: Trained) -> None:
    workload = on_tensorflow.build(SPEC, CONFIG)

    assert disagreements(train_tensorflow(workload, WEIGHT_DECAY), in_torch) == {}
    assert takes_a_step_and_predicts(workload)


def test_every_gradient_is_compared(in_torch: Trained) -> None:
    assert len(in_torch.gradients) == 3 * 96 + 2 * 2  # convolutions with scale and shift, classifiers with bias
    assert sum(gradient.size for gradient in in_torch.gradients.values()) == SPEC.parameters


def takes_a_step_and_predicts(workload: Learner) -> bool:
    scores = workload.predict(image_batch(1, 299, 1000, seed=1).images)
    return workload.step() == 2 and (scores.shape, scores.dtype) == ((1, 1000), np.float64)


def count_the_padding_in_an_average(model: on_torch.InceptionV3) -> None:
    model.get_submodule("upper.mixed_7c.pooled.0").count_include_pad = True


def swap_the_branches_of_a_block(model: on_torch.InceptionV3) -> None:
    branches = model.get_submodule("lower.mixed_6e")._modules
    branches["branch7x7"], branches["pooled"] = branches["pooled"], branches["branch7x7"]


def leave_the_auxiliary_classifier_out(model: on_torch.InceptionV3) -> None:
    model.auxiliary_fc.register_forward_hook(lambda _module, _inputs, scores: scores.zero_())


@pytest.mark.parametrize(
    "plant", [count_the_padding_in_an_average, swap_the_branches_of_a_block, leave_the_auxiliary_classifier_out]
)
def test_a_planted_mistake_is_caught(plant: Callable[[on_torch.InceptionV3], None], in_torch: Trained) -> None:
    workload = on_torch.build(SPEC, CONFIG)
    plant(workload.model)
    with torch.no_grad():
        loss = workload.loss(*workload.inputs).item()

    assert abs(loss - in_torch.loss) > 100 * BEFORE * in_torch.loss
