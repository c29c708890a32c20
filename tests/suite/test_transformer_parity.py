"""The Transformer is one network in every framework: in float64, at width 16, figures agree to rounding."""

from collections.abc import Callable
from statistics import median

import numpy as np
import pytest
import torch
from torch import nn
from transformer_trained import Array, Trained, train_mxnet, train_tensorflow, train_torch

from tbdprof import suite
from tbdprof.suite.transformer import (
    ADAM_EPSILON,
    SPEC,
    learning_rate,
    on_mxnet,
    on_tensorflow,
    on_torch,
    on_torch_network,
)

WIDTH, WARMUP = 16, 400
OPTIONS = {"width": WIDTH, "layers": 2, "vocabulary": 50, "rise": WARMUP, "dropout": "off"}
CONFIG = suite.configure(SPEC, batch_size=4, precision="fp64", seed=1, options=OPTIONS)
BEFORE = 1e-9
AFTER = 1e-6
UPDATE = 1e-6  # Keras and MXNet round the learning rate and the optimizer's constants to float32
SECOND_UPDATE = 1e-4  # of a tensor, at the median: where a gradient is next to nothing, Adam's epsilon decides
# torch's Adam adds epsilon to the square root of the corrected second moment, Keras' and MXNet's to that of the moment
# itself: at the first step theirs counts 1/√(1 − β2) times as much.
EPSILONS = {"torch": ADAM_EPSILON, "mxnet": ADAM_EPSILON / 0.02**0.5, "tensorflow": ADAM_EPSILON / 0.02**0.5}
TRAIN: dict[str, Callable[[], Trained]] = {
    "mxnet": lambda: train_mxnet(on_mxnet.build(SPEC, CONFIG)),
    "tensorflow": lambda: train_tensorflow(on_tensorflow.build(SPEC, CONFIG)),
}
# Next to nothing, as one shift of all keys changes no share: of each attention the gradient of the keys' bias.
VANISHING = "key.bias"


def differences(one: Trained, other: Trained) -> dict[str, tuple[float, float]]:
    """Return each figure's relative difference and what it may be."""
    return {
        "predicted": (float(np.abs(one.predicted - other.predicted).max() / np.abs(other.predicted).max()), BEFORE),
        "loss": (relative(one.loss, other.loss), BEFORE),
        "gradients": (max(distances(one.gradients, other.gradients)), BEFORE),
        "later loss": (relative(one.later_loss, other.later_loss), AFTER),
        "later updates": (median(distances(one.later_updates, other.later_updates)), SECOND_UPDATE),
    }


def relative(one: float, other: float) -> float:
    return abs(one - other) / abs(other)


def distances(ones: dict[str, Array], others: dict[str, Array]) -> list[float]:
    """Return each relative L2 difference; what is 0 but for rounding counts against a millionth of the largest."""
    assert set(ones) == set(others)
    sizes = {name: float(np.linalg.norm(value)) for name, value in others.items()}
    least = 1e-6 * max(sizes.values())
    return [float(np.linalg.norm(ones[name] - others[name])) / max(least, size) for name, size in sizes.items()]


def disagreements(one: Trained, other: Trained) -> dict[str, float]:
    """Return the differences that are too large; one that is no number is."""
    return {name: found for name, (found, allowed) in differences(one, other).items() if not found <= allowed}


def update_error(one: Trained, other: Trained, epsilon: float) -> float:
    """Return how far the first update is from what Adam makes of the other's gradients."""
    rate = learning_rate(1, WIDTH, WARMUP)
    adams = {name: -rate * each / (np.abs(each) + epsilon) for name, each in other.gradients.items()}
    named = [name for name in adams if not name.endswith(VANISHING)]
    return max(distances(*({name: each[name] for name in named} for each in (one.updates, adams))))


@pytest.fixture(scope="module")
def in_torch() -> Trained:
    return train_torch(on_torch.build(SPEC, CONFIG))


@pytest.mark.parametrize("framework", TRAIN)
def test_every_framework_trains_torchs_network(framework: str, in_torch: Trained) -> None:
    trained = TRAIN[framework]()
    attention, feed_forward = 4 * 2 + 2, 2 * 2 + 2

    assert len(in_torch.gradients) == 1 + 2 * (attention + feed_forward) + 2 * (2 * attention + feed_forward)
    assert disagreements(trained, in_torch) == {}
    assert update_error(trained, in_torch, EPSILONS[framework]) < UPDATE


def test_torchs_first_update_is_adams_at_the_schedules_first_rate(in_torch: Trained) -> None:
    assert update_error(in_torch, in_torch, EPSILONS["torch"]) < UPDATE
    assert update_error(in_torch, in_torch, 100 * EPSILONS["torch"]) > UPDATE


def test_the_keys_biases_have_no_gradient(in_torch: Trained) -> None:
    sizes = {name: float(np.linalg.norm(value)) for name, value in in_torch.gradients.items()}

    assert max(size for name, size in sizes.items() if name.endswith(VANISHING)) < 1e-12 * max(sizes.values())


def forget_the_scale(_: on_torch.Workload, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(on_torch_network, "sqrt", lambda _: 1.0)


def attend_to_padding(_: on_torch.Workload, patch: pytest.MonkeyPatch) -> None:
    right = on_torch_network.Transformer.forward

    def forward(
        self: on_torch_network.Transformer, source: torch.Tensor, mask: torch.Tensor, given: torch.Tensor
    ) -> torch.Tensor:
        return right(self, source, torch.ones_like(mask), given)

    patch.setattr(on_torch_network.Transformer, "forward", forward)


def look_ahead(_: on_torch.Workload, patch: pytest.MonkeyPatch) -> None:
    right = nn.functional.scaled_dot_product_attention

    def attention(*arguments: torch.Tensor, is_causal: bool) -> torch.Tensor:
        return right(*arguments)

    patch.setattr(nn.functional, "scaled_dot_product_attention", attention)


def answer_padding(_: on_torch.Workload, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(on_torch, "filled", lambda lengths, longest: np.ones((len(lengths), longest), bool))


def smooth_more(_: on_torch.Workload, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(on_torch, "SMOOTHING", 0.11)


def widen_an_epsilon(workload: on_torch.Workload, _: pytest.MonkeyPatch) -> None:
    workload.model.decoder[1].norm.eps = 1.1e-6


def untie_the_scores(_: on_torch.Workload, patch: pytest.MonkeyPatch) -> None:
    right = nn.functional.linear

    def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        return right(x, weight.detach() if bias is None else weight, bias)

    patch.setattr(nn.functional, "linear", linear)


def shift_the_positions(workload: on_torch.Workload, _: pytest.MonkeyPatch) -> None:
    workload.model.positions = workload.model.positions.roll(1, 0)


def keep_more_of_the_second_moment(workload: on_torch.Workload, _: pytest.MonkeyPatch) -> None:
    workload.optimizer.param_groups[0]["betas"] = (0.9, 0.99)


def stay_at_the_first_rate(workload: on_torch.Workload, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(workload.schedule, "step", lambda: None)


@pytest.mark.parametrize(
    ("plant", "seen_in"),
    [
        (forget_the_scale, {"predicted", "loss", "gradients"}),
        (attend_to_padding, {"predicted", "loss", "gradients"}),
        (look_ahead, {"predicted", "loss", "gradients"}),
        (shift_the_positions, {"predicted", "loss", "gradients"}),
        (widen_an_epsilon, {"predicted", "gradients"}),
        (answer_padding, {"loss", "gradients"}),
        (smooth_more, {"loss", "gradients"}),
        (untie_the_scores, {"gradients"}),
        (keep_more_of_the_second_moment, {"later updates"}),
        (stay_at_the_first_rate, {"later updates"}),
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
