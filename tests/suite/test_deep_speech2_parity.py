"""Deep Speech 2 is one network in every framework: in float64 up to the scores, and the CTC loss of given scores."""

from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import deep_speech2_trained as trained
import mxnet as mx
import numpy as np
import pytest
import tensorflow as tf
import torch
from deep_speech2_trained import FRAMES, Array, Weights

from tbdprof import suite
from tbdprof.suite.deep_speech2 import (
    LARGEST_NORM,
    LEARNING_RATE,
    MOMENTUM,
    SPEC,
    ctc,
    on_mxnet,
    on_tensorflow,
    on_torch,
)
from tbdprof.suite.workload import Config

BEFORE = 1e-9
AFTER = 1e-6
ROUNDED = float(np.float32(LEARNING_RATE))  # Keras and MXNet round the learning rate to float32
RATES = {"torch": LEARNING_RATE, "mxnet": ROUNDED, "tensorflow": ROUNDED}
FLOAT32_LOSS = 1e-5
FLOAT32_GRADIENT = 1e-4  # of the largest
KINDS = [("gru", "fused"), ("gru", "cell"), ("rnn", "fused"), ("rnn", "cell")]


class Trained(NamedTuple):
    """What two steps of training came to."""

    scores: Array
    gradients: Weights  # clipped
    second: Weights  # updates over the learning rate
    later_scores: Array


def config(cell: str, rnn: str, batch_size: int = len(FRAMES)) -> Config:
    options = {"cell": cell, "rnn": rnn, "longest": 1}
    return suite.configure(SPEC, batch_size=batch_size, precision="fp64", seed=1, options=options)


@cache
def train(framework: str, cell: str, rnn: str) -> Trained:
    """Train twice on a sum of weighed scores in place of the loss."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trained.MODULES[framework], "ctc_loss", trained.WEIGHED[framework])
        return twice(framework, trained.build(framework, config(cell, rnn)))


def twice(framework: str, workload: Any) -> Trained:
    batch = trained.utterances(*FRAMES)
    scores = trained.scores_in_training(framework, workload, batch)
    weights = [trained.weights(framework, workload)]
    for _ in range(2):
        workload.train(batch)
        weights.append(trained.weights(framework, workload))
    rate = RATES[framework]
    updates = [{name: (before[name] - after[name]) / rate for name in before} for before, after in pairwise(weights)]
    return Trained(scores, *updates, trained.scores_in_training(framework, workload, batch))


def largest(one: Array, other: Array) -> float:
    assert one.shape == other.shape
    return float(np.abs(one - other).max() / np.abs(other).max())


def farthest(ones: Weights, others: Weights) -> float:
    """Return the largest relative L2 difference; what is 0 but for rounding counts against a millionth of the most."""
    assert set(ones) == set(others)
    sizes = {name: float(np.linalg.norm(value)) for name, value in others.items()}
    least = 1e-6 * max(sizes.values())
    return max(float(np.linalg.norm(ones[name] - others[name])) / max(least, size) for name, size in sizes.items())


def differences(one: Trained, other: Trained) -> dict[str, tuple[float, float]]:
    """Return each figure's difference and what it may be."""
    return {
        "scores": (largest(one.scores, other.scores), BEFORE),
        "gradients": (farthest(one.gradients, other.gradients), BEFORE),
        "second update": (farthest(one.second, other.second), AFTER),
        "later scores": (largest(one.later_scores, other.later_scores), AFTER),
    }


def disagreements(one: Trained, other: Trained) -> dict[str, float]:
    """Return the differences that are too large; one that is no number is."""
    return {name: found for name, (found, allowed) in differences(one, other).items() if not found <= allowed}


@pytest.mark.parametrize(("cell", "rnn"), KINDS)
@pytest.mark.parametrize("framework", ["torch", "mxnet", "tensorflow"])
def test_every_framework_trains_torchs_network(framework: str, cell: str, rnn: str) -> None:
    found = disagreements(train(framework, cell, rnn), train("torch", cell, "fused"))

    assert found == {}


@pytest.mark.parametrize("cell", ["gru", "rnn"])
def test_every_gradient_is_compared_and_clipped_at_the_norm(cell: str) -> None:
    gradients = train("torch", cell, "fused").gradients
    norm = np.sqrt(sum(float(np.square(gradient).sum()) for gradient in gradients.values()))

    assert norm == pytest.approx(LARGEST_NORM)
    assert len(gradients) == 2 * 3 + 5 * (2 * (4 if cell == "gru" else 3) + 2) + 4


def make_a_layers_inputs_smaller(workload: on_torch.Workload, patch: pytest.MonkeyPatch) -> None:
    cells = workload.model.recurrent[0].cells
    patch.setattr(
        cells, "forward", lambda packed: torch.nn.GRU.forward(cells, packed._replace(data=packed.data * 0.999))
    )


def widen_an_epsilon(workload: on_torch.Workload, _: pytest.MonkeyPatch) -> None:
    workload.model.recurrent[2].norm.eps = 1.1e-5


def clip_the_relu_lower(workload: on_torch.Workload, _: pytest.MonkeyPatch) -> None:
    workload.model.conv2.relu.max_val = 1.0


def clip_later(_: on_torch.Workload, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(on_torch, "LARGEST_NORM", 401.0)


def lose_momentum(workload: on_torch.Workload, _: pytest.MonkeyPatch) -> None:
    workload.optimizer.param_groups[0]["momentum"] = MOMENTUM - 0.01


@pytest.mark.parametrize(
    ("plant", "seen_in"),
    [
        (make_a_layers_inputs_smaller, {"scores", "gradients"}),
        (widen_an_epsilon, {"scores", "gradients"}),
        (clip_the_relu_lower, {"scores", "gradients"}),
        (clip_later, {"gradients", "second update"}),
        (lose_momentum, {"second update"}),
    ],
)
def test_a_planted_mistake_is_caught(plant: Any, seen_in: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_torch, "ctc_loss", trained.weighed_in_torch)
    workload = trained.build("torch", config("gru", "fused"))
    plant(workload, monkeypatch)

    found = twice("torch", workload)

    assert seen_in <= set(disagreements(found, train("torch", "gru", "fused")))


@pytest.mark.parametrize("rnn", ["fused", "cell"])
@pytest.mark.parametrize("framework", ["torch", "mxnet", "tensorflow"])
def test_the_scores_of_an_utterance_do_not_depend_on_how_far_it_is_filled_up(framework: str, rnn: str) -> None:
    workload = trained.build(framework, config("gru", rnn, batch_size=2))

    together = workload.predict(trained.utterances(43, 21))
    alone = workload.predict(trained.utterances(21))

    assert together.shape == (22, 2, 29)
    assert np.abs(alone).min() > 0
    np.testing.assert_allclose(together[:11, 1], alone[:, 0], rtol=1e-10, atol=1e-13)
    assert not together[11:, 1].any()


def given_scores() -> np.ndarray:
    scores: np.ndarray = 3 * np.random.default_rng(7).standard_normal((22, 3, 29)).astype(np.float32)
    return scores


def loss_in_torch() -> tuple[float, Array]:
    example = on_torch.on_device(trained.utterances(*FRAMES), config("gru", "fused"))
    scores = torch.from_numpy(given_scores()).requires_grad_()
    loss = on_torch.ctc_loss(scores, example)
    loss.backward()
    return loss.item(), scores.grad.numpy()


def loss_in_mxnet() -> tuple[float, Array]:
    example = on_mxnet.on_device(trained.utterances(*FRAMES), config("gru", "fused"))
    scores = mx.nd.array(given_scores())
    scores.attach_grad()
    with mx.autograd.record():
        loss = on_mxnet.ctc_loss(scores, example)
    loss.backward()
    return float(loss.asscalar()), scores.grad.asnumpy()


def loss_in_tensorflow() -> tuple[float, Array]:
    example, _ = on_tensorflow.on_device(trained.utterances(*FRAMES), config("gru", "fused"))
    scores = tf.constant(given_scores().swapaxes(0, 1))
    with tf.GradientTape() as tape:
        tape.watch(scores)
        loss = on_tensorflow.ctc_loss(scores, example)
    return float(loss), tape.gradient(loss, scores).numpy().swapaxes(0, 1)


LOSSES = {"torch": loss_in_torch, "mxnet": loss_in_mxnet, "tensorflow": loss_in_tensorflow}


@pytest.mark.parametrize("framework", LOSSES)
def test_the_loss_of_given_scores_is_ctcs_by_its_definition(framework: str) -> None:
    batch, step = trained.utterances(*FRAMES), 1e-5
    wide = given_scores().astype(np.float64)
    loss, gradient = LOSSES[framework]()

    assert loss == pytest.approx(np.mean(ctc.losses(wide, batch)), rel=FLOAT32_LOSS)
    for place in [(0, 0, 0), (3, 0, int(batch.transcripts[0, 0])), (10, 1, 5), (10, 2, 0), (21, 0, 0)]:
        shifted = [wide.copy(), wide.copy()]
        for each, sign in zip(shifted, (1, -1), strict=True):
            each[place] += sign * step
        up, down = (np.mean(ctc.losses(each, batch)) for each in shifted)
        bound = FLOAT32_GRADIENT * float(np.abs(gradient).max())
        assert gradient[place] == pytest.approx((up - down) / (2 * step), abs=bound)


@pytest.mark.parametrize("framework", ["mxnet", "tensorflow"])
def test_the_gradient_of_given_scores_is_torchs(framework: str) -> None:
    (loss, gradient), (others, theirs) = LOSSES["torch"](), LOSSES[framework]()

    assert others == pytest.approx(loss, rel=FLOAT32_LOSS)
    assert np.abs(theirs - gradient).max() < FLOAT32_GRADIENT * np.abs(gradient).max()
    assert not theirs[15:, 1].any()  # padding has no part in it
    assert gradient[14, 1].any()
