"""A3C is one network and one way to train it in every framework: in float64, on recorded steps, figures agree."""

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
import torch
from a3c_trained import STEPS, Array, Trained, recorded, train_mxnet, train_tensorflow, train_torch
from torch import Tensor
from torch.nn import functional

from tbdprof import suite
from tbdprof.suite.a3c import (
    ENTROPY_WEIGHT,
    EPSILON,
    LARGEST_NORM,
    LEARNING_RATE,
    SPEC,
    SQUARES_KEPT,
    on_mxnet,
    on_tensorflow,
    on_torch,
)
from tbdprof.suite.a3c.rollouts import Rollout
from tbdprof.suite.a3c.training import Workload

CONFIG = suite.configure(SPEC, batch_size=STEPS, precision="fp64", seed=1, options={"actors": 1})
BEFORE = 1e-9
AFTER = 1e-6
UPDATE = 1e-6  # Keras and MXNet round the optimizer's constants to float32
SMALL, LARGE = 1.0, 100.0  # bounds of returns: with the one no gradient is clipped, with the other all are

TRAIN: dict[str, Callable[[Rollout], Trained]] = {
    "torch": lambda rollout: train_torch(on_torch.build(SPEC, CONFIG), rollout),
    "mxnet": lambda rollout: train_mxnet(on_mxnet.build(SPEC, CONFIG), rollout),
    "tensorflow": lambda rollout: train_tensorflow(on_tensorflow.build(SPEC, CONFIG), rollout),
}
every_framework = pytest.mark.parametrize("framework", TRAIN)
clipped_or_not = pytest.mark.parametrize("returned", [SMALL, LARGE])


@cache
def trained(framework: str, returned: float) -> Trained:
    return TRAIN[framework](recorded(returned))


def differences(one: Trained, other: Trained) -> dict[str, tuple[float, float]]:
    """Return each figure's relative difference and what it may be."""
    return {
        "logits": (largest(one.logits, other.logits), BEFORE),
        "values": (largest(one.values, other.values), BEFORE),
        "loss": (relative(one.loss, other.loss), BEFORE),
        "gradients": (farthest(one.gradients, other.gradients), BEFORE),
        "updates": (farthest(one.updates, other.updates), UPDATE),
        "later loss": (relative(one.later_loss, other.later_loss), AFTER),
        "later updates": (farthest(one.later_updates, other.later_updates), UPDATE),
    }


def disagreements(one: Trained, other: Trained) -> dict[str, float]:
    """Return the differences that are too large; one that is no number is."""
    return {name: found for name, (found, allowed) in differences(one, other).items() if not found <= allowed}


def largest(one: Array, other: Array) -> float:
    assert one.shape == other.shape
    return float(np.abs(one - other).max() / np.abs(other).max())


def relative(one: float, other: float) -> float:
    return abs(one - other) / abs(other)


def farthest(ones: dict[str, Array], others: dict[str, Array]) -> float:
    """Return the largest relative L2 difference."""
    assert set(ones) == set(others)
    return max(float(np.linalg.norm(ones[name] - each) / np.linalg.norm(each)) for name, each in others.items())


def norm(gradients: dict[str, Array]) -> float:
    """Return the norm of all gradients."""
    return float(np.sqrt(sum(np.square(each).sum() for each in gradients.values())))


def papers_update(gradients: dict[str, Array]) -> dict[str, Array]:
    """Return what the paper's RMSProp makes of gradients that are clipped, at its first update."""
    scale = min(1.0, LARGEST_NORM / norm(gradients))
    clipped = {name: scale * each for name, each in gradients.items()}
    return {
        name: -LEARNING_RATE * each / np.sqrt((1 - SQUARES_KEPT) * np.square(each) + EPSILON)
        for name, each in clipped.items()
    }


@clipped_or_not
@pytest.mark.parametrize("framework", ["mxnet", "tensorflow"])
def test_every_framework_trains_torchs_network(framework: str, returned: float) -> None:
    assert len(trained("torch", returned).gradients) == 2 * 5
    assert disagreements(trained(framework, returned), trained("torch", returned)) == {}


@clipped_or_not
@every_framework
def test_an_update_is_the_papers(framework: str, returned: float) -> None:
    found = trained(framework, returned)

    assert (norm(found.gradients) > LARGEST_NORM) is (returned == LARGE)
    assert farthest(found.updates, papers_update(trained("torch", returned).gradients)) < UPDATE


@every_framework
def test_the_loss_is_the_definitions(framework: str) -> None:
    """The policy's, half of the squared error of the value, and the entropy that is wanted, summed over steps."""
    found, rollout = trained(framework, SMALL), recorded(SMALL)
    policy = np.exp(found.logits) / np.exp(found.logits).sum(1, keepdims=True)
    advantages = rollout.returns - found.values
    done = np.log(policy[np.arange(STEPS), rollout.actions])
    entropies = -(policy * np.log(policy)).sum(1)

    assert found.loss == pytest.approx(
        (advantages**2 / 2 - done * advantages - ENTROPY_WEIGHT * entropies).sum(), rel=1e-9
    )


def forget_the_entropy(_: Workload, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(on_torch, "ENTROPY_WEIGHT", 0.0)


def let_the_policy_train_the_value(_: Workload, patch: pytest.MonkeyPatch) -> None:
    def loss_of(logits: Tensor, values: Tensor, actions: Tensor, returns: Tensor) -> Tensor:
        right = loss_as_it_is(logits, values, actions, returns)
        done = functional.log_softmax(logits, 1).gather(1, actions[:, None]).squeeze(1).detach()
        return right + (done * (values - values.detach())).sum()

    loss_as_it_is = on_torch.loss_of
    patch.setattr(on_torch, "loss_of", loss_of)


def add_epsilon_to_the_root(workload: Workload, patch: pytest.MonkeyPatch) -> None:
    (optimizer,) = workload.optimizer
    patch.setattr(optimizer, "step", lambda: torches_own_step(optimizer))


def torches_own_step(optimizer: on_torch.RMSprop) -> None:
    with torch.no_grad():
        for parameter, shared in zip(optimizer.param_groups[0]["params"], optimizer._shared, strict=True):
            square = optimizer.state[parameter]["square_avg"]
            square.mul_(SQUARES_KEPT).addcmul_(parameter.grad, parameter.grad, value=1 - SQUARES_KEPT)
            shared.addcdiv_(parameter.grad, square.sqrt().add_(EPSILON), value=-LEARNING_RATE)


def clip_later(_: Workload, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(on_torch, "LARGEST_NORM", 40.01)


def forget_more_of_the_squares(workload: Workload, _: pytest.MonkeyPatch) -> None:
    (optimizer,) = workload.optimizer
    optimizer.param_groups[0]["alpha"] = 0.9  # type: ignore[attr-defined]


def leave_the_copy_behind(workload: Workload, patch: pytest.MonkeyPatch) -> None:
    (agent,) = workload.agents
    agent.copy_shared()
    patch.setattr(agent, "copy_shared", lambda: None)


@pytest.mark.parametrize(
    ("plant", "seen_in"),
    [
        (forget_the_entropy, {"loss", "gradients", "updates"}),
        (let_the_policy_train_the_value, {"gradients", "updates"}),
        (add_epsilon_to_the_root, {"updates", "later updates", "later loss"}),
        (clip_later, {"updates", "later updates"}),
        (forget_more_of_the_squares, {"updates", "later updates"}),
        (leave_the_copy_behind, {"later loss", "later updates"}),
    ],
)
def test_a_planted_mistake_is_caught(
    plant: Callable[[Workload, pytest.MonkeyPatch], None], seen_in: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = on_torch.build(SPEC, CONFIG)
    before = trained("torch", LARGE)
    plant(workload, monkeypatch)

    assert seen_in <= set(disagreements(train_torch(workload, recorded(LARGE)), before))
