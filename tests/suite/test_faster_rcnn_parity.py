"""Faster R-CNN is one network in every framework: in float64, at 64 pixels, figures agree to rounding."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from statistics import median
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import torch
from numpy.typing import NDArray

from tbdprof import suite
from tbdprof.suite.faster_rcnn import SPEC, WEIGHT_DECAY, on_mxnet, on_tensorflow, on_torch, on_torch_network
from tbdprof.suite.faster_rcnn.architecture import layers
from tbdprof.suite.faster_rcnn.synthetic import detection_batch

Array = NDArray[np.float64]
CONFIG = suite.configure(
    SPEC, precision="fp64", seed=1, options={"image_size": 64, "proposals_after": 12, "regions": 4}
)
OTHER_SIZE = detection_batch(80, seed=2)
BEFORE = 1e-9
AFTER = 1e-6
UPDATE = 1e-7  # MXNet rounds the optimizer's constants to float32, Keras the learning rate
SECOND_UPDATE = 1e-4  # a difference as small may turn a ReLU over: only the median counts
OF_ANCHORS = ("anchor_scores", "anchor_deltas")
OF_REGIONS = ("scores", "deltas")
SAMPLED = ("regions", "labels", "weights", "targets")


@dataclass(frozen=True)
class Trained:
    """What a network did in two steps; gradients and weights by torch's names and in its layout."""

    found: Array  # boxes, classes and scores detected before any training
    loss: float
    outputs: dict[str, Array]  # in the first step, as are the sample and the gradients
    sample: dict[str, Array]
    gradients: dict[str, Array]
    weights: dict[str, Array]  # after the first step
    later_loss: float
    later_weights: dict[str, Array]  # after the second


def put_out(outputs: Any, to_numpy: Callable[[Any], Array]) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return a model's outputs and its sample, by name."""
    of_model = {name: to_numpy(getattr(outputs, name)) for name in (*OF_ANCHORS, *OF_REGIONS)}
    return of_model, {name: to_numpy(getattr(outputs.sample, name)) for name in SAMPLED}


def detected(workload: Any) -> Array:
    """Return what is detected in the image, one row each: its box, class and score."""
    found = workload.predict(detection_batch(64, CONFIG.seed).images)
    return np.concatenate([found.boxes, found.classes[:, None], found.scores[:, None]], axis=1)


def train_torch(workload: on_torch.Workload, example: on_torch.Example) -> Trained:
    trained = {name: value for name, value in workload.model.named_parameters() if value.requires_grad}
    seen: list[Any] = []
    hook = workload.model.register_forward_hook(lambda _module, _inputs, outputs: seen.append(outputs))

    def values() -> dict[str, Array]:
        return {name: value.detach().numpy().copy() for name, value in trained.items()}

    found = detected(workload)
    loss = workload.update(example).item()
    hook.remove()
    outputs, sample = put_out(seen[0], lambda tensor: tensor.detach().numpy())
    gradients = {name: value.grad.numpy().copy() for name, value in trained.items()}
    weights = values()
    later_loss = workload.update(example).item()
    return Trained(found, loss, outputs, sample, gradients, weights, later_loss, values())


def train_mxnet(workload: on_mxnet.Workload, example: on_mxnet.Example) -> Trained:
    parameters = workload.model._collect_params_with_prefix()
    trained = {name: value for name, value in parameters.items() if value.grad_req != "null"}
    seen: list[Any] = []
    hook = workload.model.register_forward_hook(lambda _block, _inputs, outputs: seen.append(outputs))

    def values() -> dict[str, Array]:
        return {name: value.data().asnumpy() for name, value in trained.items()}

    found = detected(workload)
    loss = float(workload.update(example).asscalar())
    hook.detach()
    outputs, sample = put_out(seen[0], lambda array: array.asnumpy())
    gradients = {name: value.grad().asnumpy() for name, value in trained.items()}
    weights = values()
    later_loss = float(workload.update(example).asscalar())
    return Trained(found, loss, outputs, sample, gradients, weights, later_loss, values())


def train_tensorflow(workload: on_tensorflow.Workload, example: on_tensorflow.Example) -> Trained:
    """Take two steps; the gradients are what the first left in the momentum, which began with zero."""
    model, optimizer = workload.model, workload.optimizer

    def values() -> dict[str, Array]:
        return {torch_name(variable.path): torch_layout(variable.numpy()) for variable in model.trainable_variables}

    found = detected(workload)
    called = model(example.images, example.anchors, example.boxes, example.labels, example.priorities)
    outputs, sample = put_out(called, lambda tensor: tensor.numpy())
    first = values()
    loss = float(workload.train_step(example))
    moved = [torch_layout(variable.numpy()) / -float(optimizer.learning_rate) for variable in optimizer.momentums]
    gradients = {name: move - WEIGHT_DECAY * weight for (name, weight), move in zip(first.items(), moved, strict=True)}
    weights = values()
    later_loss = float(workload.train_step(example))
    return Trained(found, loss, outputs, sample, gradients, weights, later_loss, values())


def torch_name(path: str) -> str:
    return path.removeprefix("faster_rcnn/").replace("/", ".").replace("kernel", "weight")


def torch_layout(values: Array) -> Array:
    """Return weights of Keras with outputs first, as torch has them."""
    return values.transpose((3, 2, 0, 1)) if values.ndim == 4 else values.T


def differences(one: Trained, other: Trained) -> dict[str, tuple[float, float]]:
    """Return each figure's relative difference and what it may be."""
    return {
        "found": (largest(one.found, other.found), BEFORE),
        "loss": (abs(one.loss - other.loss) / abs(other.loss), BEFORE),
        "anchors": (max(largest(one.outputs[name], other.outputs[name]) for name in OF_ANCHORS), BEFORE),
        "sample": (max(largest(one.sample[name], other.sample[name]) for name in SAMPLED), BEFORE),
        "regions": (max(largest(one.outputs[name], other.outputs[name]) for name in OF_REGIONS), BEFORE),
        "gradients": (max(distances(one.gradients, other.gradients)), BEFORE),
        "weights": (max(distances(one.weights, other.weights)), UPDATE),
        "later_loss": (abs(one.later_loss - other.later_loss) / abs(other.later_loss), AFTER),
        "later_weights": (median(distances(one.later_weights, other.later_weights)), SECOND_UPDATE),
    }


def largest(one: Array, other: Array) -> float:
    """Return the largest difference over the largest value; of different shapes it is no number."""
    if one.shape != other.shape:
        return float("nan")
    return float(np.abs(one - other).max() / np.abs(other).max())


def distances(ones: dict[str, Array], others: dict[str, Array]) -> list[float]:
    """Return the relative L2 difference of each pair."""
    assert set(ones) == set(others)
    return [float(np.linalg.norm(ones[name] - others[name]) / np.linalg.norm(others[name])) for name in others]


def disagreements(one: Trained, other: Trained) -> dict[str, float]:
    """Return the differences that are too large; one that is no number is."""
    return {name: found for name, (found, allowed) in differences(one, other).items() if not found <= allowed}


def numbers(trained: dict[str, int]) -> dict[str, int]:
    """Return how many trained parameters each part has."""
    parts = dict.fromkeys(("layer2", "layer3", "layer4", "proposals", "heads"), 0)
    for name, count in trained.items():
        first = name.partition(".")[0]
        parts[first if first in parts else "heads"] += count
    return parts


TRAINED_BY_PART = {"layer2": 1_212_416, "layer3": 26_017_792, "layer4": 14_942_208} | {
    "proposals": 4_746_806,
    "heads": 215_145,
}


@cache
def in_torch() -> Trained:
    workload = on_torch.build(SPEC, CONFIG)
    return train_torch(workload, next(workload.batches))


def test_the_first_step_has_regions_of_both_kinds_to_compare() -> None:
    sample = in_torch().sample

    assert sample["weights"].sum() == 4
    assert (sample["labels"] > 0).sum() == 1
    assert len(in_torch().found) > 3
    assert len(in_torch().gradients) == 103 == sum(layer.trained for layer in layers()) + 5  # and five biases


def test_torch_has_the_parameters_and_buffers_of_every_part() -> None:
    model = on_torch.FasterRCNN(60, 60, 12)
    parameters = dict(model.named_parameters())

    assert numbers({name: each.numel() for name, each in parameters.items() if each.requires_grad}) == TRAINED_BY_PART
    assert sum(each.numel() for each in parameters.values()) == 47_462_111
    assert not any(module.training for module in model.modules() if isinstance(module, torch.nn.BatchNorm2d))
    assert not any(module.training for module in model.train().modules() if isinstance(module, torch.nn.BatchNorm2d))


def test_torch_and_mxnet_train_one_network() -> None:
    workload = on_mxnet.build(SPEC, CONFIG)
    parameters = workload.model._collect_params_with_prefix()
    before = {name: value.data().asnumpy() for name, value in parameters.items() if value.grad_req == "null"}
    trained = {name: value.data().size for name, value in parameters.items() if value.grad_req != "null"}

    assert disagreements(train_mxnet(workload, next(workload.batches)), in_torch()) == {}
    assert numbers(trained) == TRAINED_BY_PART
    assert sum(value.size for name, value in before.items() if "running" not in name) == 327_744
    assert all(np.array_equal(parameters[name].data().asnumpy(), value) for name, value in before.items())
    assert workload.train(OTHER_SIZE) > 0
    assert workload.step() == 1


@pytest.mark.long
def test_torch_and_tensorflow_train_one_network() -> None:
    workload = on_tensorflow.build(SPEC, CONFIG)
    model = workload.model
    before = [variable.numpy() for variable in model.non_trainable_variables]
    trained = {torch_name(variable.path): int(tf.size(variable)) for variable in model.trainable_variables}
    frozen = [variable for variable in model.non_trainable_variables if "moving" not in variable.path]

    assert disagreements(train_tensorflow(workload, next(workload.batches)), in_torch()) == {}
    assert numbers(trained) == TRAINED_BY_PART
    assert sum(int(tf.size(variable)) for variable in frozen) == 327_744
    assert all(map(np.array_equal, before, (variable.numpy() for variable in model.non_trainable_variables)))
    assert workload.train(OTHER_SIZE) > 0
    assert workload.step() == 1
    assert workload.train_step.experimental_get_tracing_count() == 1


@pytest.fixture(scope="module")
def planted() -> on_torch.Workload:
    """Return a workload to plant mistakes in, one after the other."""
    return on_torch.build(SPEC, CONFIG)


def shift_the_anchors(_: on_torch.Workload, example: on_torch.Example, __: pytest.MonkeyPatch) -> on_torch.Example:
    return example._replace(anchors=example.anchors + 1)


def forget_the_half_pixel(
    _: on_torch.Workload, example: on_torch.Example, patch: pytest.MonkeyPatch
) -> on_torch.Example:
    right = on_torch_network.align
    patch.setattr(on_torch_network, "align", lambda maps, regions: right(maps, regions + 8))
    return example


def misplace_a_stride(
    workload: on_torch.Workload, example: on_torch.Example, patch: pytest.MonkeyPatch
) -> on_torch.Example:
    block = workload.model.layer4[0]
    patch.setattr(block.conv1, "stride", (2, 2))
    patch.setattr(block.conv2, "stride", (1, 1))
    return example


def widen_an_epsilon(
    workload: on_torch.Workload, example: on_torch.Example, patch: pytest.MonkeyPatch
) -> on_torch.Example:
    patch.setattr(workload.model.layer3[1].bn2, "eps", 1.1e-5)
    return example


def count_the_objects_twice(
    _: on_torch.Workload, example: on_torch.Example, __: pytest.MonkeyPatch
) -> on_torch.Example:
    return example._replace(weights=example.weights * (1 + example.positive))


@pytest.mark.parametrize(
    ("plant", "seen_in"),
    [
        (shift_the_anchors, {"sample", "loss", "regions"}),
        (forget_the_half_pixel, {"loss", "regions"}),
        (misplace_a_stride, {"loss", "regions"}),
        (widen_an_epsilon, {"loss", "anchors", "sample", "regions"}),
        (count_the_objects_twice, {"loss"}),
    ],
)
def test_a_mistake_planted_in_the_forward_pass_is_caught(
    plant: Callable[[on_torch.Workload, on_torch.Example, pytest.MonkeyPatch], on_torch.Example],
    seen_in: set[str],
    planted: on_torch.Workload,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    example = plant(planted, next(planted.batches), monkeypatch)
    seen: list[Any] = []
    hook = planted.model.register_forward_hook(lambda _module, _inputs, outputs: seen.append(outputs))
    with torch.no_grad():
        loss = planted.loss(example).item()
    hook.remove()
    outputs, sample = put_out(seen[0], lambda tensor: tensor.numpy())
    found = replace(in_torch(), loss=loss, outputs=outputs, sample=sample)

    assert set(disagreements(found, in_torch())) == seen_in


def test_a_mistake_planted_in_the_update_is_caught(planted: on_torch.Workload) -> None:
    planted.optimizer.param_groups[0].update(weight_decay=0.0, momentum=0.0)
    found = disagreements(train_torch(planted, next(planted.batches)), in_torch())

    # The first step shows the decay; only in the second is there a momentum to be missed.
    assert set(found) == {"weights", "later_weights"} or set(found) == {"weights", "later_weights", "later_loss"}
    assert found["weights"] < SECOND_UPDATE < found["later_weights"]
