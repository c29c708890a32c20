"""WGAN-GP is one network in every framework: in float64, at width 8, figures agree to rounding."""

from collections.abc import Callable, Iterator
from statistics import median

import numpy as np
import pytest
import torch
from wgan_trained import BATCH, NETWORKS, Array, Trained, train_mxnet, train_tensorflow, train_torch

from tbdprof import suite
from tbdprof.suite.wgan import ADAM_EPSILON, SPEC, learning_rate, on_mxnet, on_tensorflow, on_torch

CONFIG = suite.configure(SPEC, batch_size=BATCH, precision="fp64", seed=1, options={"width": 8})
LEARNING_RATE = learning_rate(64)
BEFORE = 1e-9
AFTER = 1e-6
UPDATE = 1e-6  # Keras and MXNet round the optimizer's constants to float32
SECOND_UPDATE = 1e-4  # of a tensor, at the median: a difference as small may turn a sign over
# torch's Adam adds epsilon to the square root of the corrected second moment, Keras' and MXNet's to that of the moment
# itself: at the first step theirs counts 1/√(1 − β2) times as much.
EPSILONS = {"torch": ADAM_EPSILON, "mxnet": ADAM_EPSILON / 0.1**0.5, "tensorflow": ADAM_EPSILON / 0.1**0.5}


TRAIN: dict[str, Callable[[], Trained]] = {
    "mxnet": lambda: train_mxnet(on_mxnet.build(SPEC, CONFIG)),
    "tensorflow": lambda: train_tensorflow(on_tensorflow.build(SPEC, CONFIG)),
}


def differences(one: Trained, other: Trained) -> dict[str, tuple[float, float]]:
    """Return each figure's relative difference and what it may be."""
    found = {
        "scores": (largest(one.scores, other.scores), BEFORE),
        "made": (largest(one.made, other.made), BEFORE),
    }
    for network in NETWORKS:
        found |= {
            f"{network} loss": (relative(one.losses[network], other.losses[network]), BEFORE),
            f"{network} gradients": (max(distances(one.gradients, other.gradients, network)), BEFORE),
            f"{network} later loss": (relative(one.later_losses[network], other.later_losses[network]), AFTER),
            f"{network} later updates": (
                median(distances(one.later_updates, other.later_updates, network)),
                SECOND_UPDATE,
            ),
        }
    return found


def largest(one: Array, other: Array) -> float:
    assert one.shape == other.shape
    return float(np.abs(one - other).max() / np.abs(other).max())


def relative(one: float, other: float) -> float:
    return abs(one - other) / abs(other)


def distances(ones: dict[str, Array], others: dict[str, Array], network: str) -> list[float]:
    """Return each relative L2 difference; what is 0 but for rounding counts against a millionth of the largest."""
    assert set(ones) == set(others)
    sizes = {name: float(np.linalg.norm(value)) for name, value in others.items() if name.startswith(network)}
    least = 1e-6 * max(sizes.values())
    return [float(np.linalg.norm(ones[name] - others[name])) / max(least, size) for name, size in sizes.items()]


def disagreements(one: Trained, other: Trained) -> dict[str, float]:
    """Return the differences that are too large; one that is no number is."""
    return {name: found for name, (found, allowed) in differences(one, other).items() if not found <= allowed}


@pytest.fixture(autouse=True, scope="module")
def _papers_learning_rate() -> Iterator[None]:
    """Take what is the paper's at its own width: the figures after a step go with the step's size."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (on_torch, on_mxnet, on_tensorflow):
            patch.setattr(module, "learning_rate", lambda _: LEARNING_RATE)
        yield


@pytest.fixture(scope="module")
def in_torch(_papers_learning_rate: None) -> Trained:
    return train_torch(on_torch.build(SPEC, CONFIG))


@pytest.mark.parametrize("framework", TRAIN)
def test_every_framework_trains_torchs_networks(framework: str, in_torch: Trained) -> None:
    trained = TRAIN[framework]()
    of_a_block = 2 + 1 + 2 + 2 + 2

    assert len(in_torch.gradients) == 2 * (2 + 4 * of_a_block + 2) + 2
    assert disagreements(trained, in_torch) == {}
    assert update_error(trained, in_torch, EPSILONS[framework]) < UPDATE


def test_torchs_first_update_is_adams(in_torch: Trained) -> None:
    assert update_error(in_torch, in_torch, EPSILONS["torch"]) < UPDATE
    assert update_error(in_torch, in_torch, EPSILONS["mxnet"]) > UPDATE


def update_error(one: Trained, other: Trained, epsilon: float) -> float:
    """Return how far the critic's first update is from what Adam makes of the other's gradients."""
    adams = {name: -LEARNING_RATE * each / (np.abs(each) + epsilon) for name, each in other.gradients.items()}
    return max(distances(one.updates, adams, "critic"))


def weigh_the_penalty_less(_: on_torch.Workload, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(on_torch, "PENALTY", 9.0)


def widen_an_epsilon(workload: on_torch.Workload, _: pytest.MonkeyPatch) -> None:
    workload.model[1].block4.norm2.eps = 1.1e-5


def pool_before_a_convolution(workload: on_torch.Workload, _: pytest.MonkeyPatch) -> None:
    block = workload.model[1].block4

    def forward(x: torch.Tensor) -> torch.Tensor:
        inner = block.conv1(block.relu(block.norm1(x)))
        return block.conv2(block.pool(block.relu(block.norm2(inner)))) + block.shortcut(block.pool(x))

    block.forward = forward


def double_after_a_convolution(workload: on_torch.Workload, _: pytest.MonkeyPatch) -> None:
    block = workload.model[0].block4

    def forward(x: torch.Tensor) -> torch.Tensor:
        inner = block.up(block.conv1(block.relu(block.norm1(x))))
        return block.conv2(block.relu(block.norm2(inner))) + block.shortcut(block.up(x))

    block.forward = forward


def forget_the_slopes_second_gradient(_: on_torch.Workload, patch: pytest.MonkeyPatch) -> None:
    right = torch.autograd.grad

    def once(*arguments: object, **keywords: object) -> tuple[torch.Tensor, ...]:
        found = right(*arguments, **keywords)
        return tuple(each.detach() for each in found) if keywords.get("create_graph") else found

    patch.setattr(torch.autograd, "grad", once)


def keep_more_of_the_second_moment(workload: on_torch.Workload, _: pytest.MonkeyPatch) -> None:
    workload.optimizer[1].param_groups[0]["betas"] = (0.0, 0.99)


def add_a_momentum(workload: on_torch.Workload, _: pytest.MonkeyPatch) -> None:
    workload.optimizer[0].param_groups[0]["betas"] = (0.5, 0.9)


@pytest.mark.parametrize(
    ("plant", "seen_in"),
    [
        (weigh_the_penalty_less, {"critic loss", "critic gradients"}),
        (widen_an_epsilon, {"scores", "critic gradients", "generator gradients"}),
        (pool_before_a_convolution, {"scores", "critic loss", "critic gradients", "generator loss"}),
        (double_after_a_convolution, {"made", "generator loss", "generator gradients", "critic loss"}),
        (forget_the_slopes_second_gradient, {"critic gradients", "critic later updates"}),
        (keep_more_of_the_second_moment, {"critic later updates"}),
        (add_a_momentum, {"generator later updates"}),
    ],
)
def test_a_planted_mistake_is_caught(
    plant: Callable[[on_torch.Workload, pytest.MonkeyPatch], None],
    seen_in: set[str],
    in_torch: Trained,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    workload = on_torch.build(SPEC, CONFIG)
    plant(workload, monkeypatch)

    assert seen_in <= set(disagreements(train_torch(workload), in_torch))
