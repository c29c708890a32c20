"""Seq2Seq is one network in every framework, fused or not, whatever padding a batch has: in float64, at width 8."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from seq2seq_trained import (
    BATCH,
    SOURCES,
    TARGETS,
    Array,
    Trained,
    pairs,
    train_mxnet,
    train_tensorflow,
    train_torch,
)

from tbdprof import suite
from tbdprof.suite.data.inputs import SentencePairs
from tbdprof.suite.seq2seq import SPEC, initial, on_mxnet, on_tensorflow, on_torch, on_torch_network
from tbdprof.suite.workload import Config

BEFORE = 1e-9
AFTER = 1e-6  # the frameworks add different tiny numbers to the norm that gradients are clipped by
CLIPPED = 1.0
RATE_OF = 128  # at the learning rate of TensorFlow NMT's batch: the step is as large as it gets
KINDS = ("fused", "cell")
TRAIN: dict[str, Callable[[Config, SentencePairs], Trained]] = {
    "torch": lambda config, batch: train_torch(on_torch.build(SPEC, config), batch),
    "mxnet": lambda config, batch: train_mxnet(on_mxnet.build(SPEC, config), batch),
    "tensorflow": lambda config, batch: train_tensorflow(on_tensorflow.build(SPEC, config), batch),
}
CELLS = [(framework, rnn) for framework in TRAIN for rnn in KINDS]
WIDER = pairs(SOURCES, TARGETS, longer=3, filled=7)  # the same sentences, with more padding that looks like words


def config(rnn: str) -> Config:
    options = {"width": 8, "dropout": "off", "rnn": rnn}
    return suite.configure(SPEC, batch_size=RATE_OF, precision="fp64", seed=1, options=options)


def differences(one: Trained, other: Trained) -> dict[str, tuple[float, float]]:
    """Return each figure's relative difference and what it may be."""
    return {
        "predicted": (float(np.abs(one.predicted - other.predicted).max() / np.abs(other.predicted).max()), BEFORE),
        "loss": (abs(one.loss - other.loss) / other.loss, BEFORE),
        "gradients": (max(distances(one.gradients, other.gradients)), BEFORE),
        "later loss": (abs(one.later_loss - other.later_loss) / other.later_loss, AFTER),
    }


def distances(ones: dict[str, Array], others: dict[str, Array]) -> list[float]:
    """Return each relative L2 difference."""
    assert set(ones) == set(others)
    return [float(np.linalg.norm(ones[name] - other) / np.linalg.norm(other)) for name, other in others.items()]


def disagreements(one: Trained, other: Trained) -> dict[str, float]:
    """Return the differences that are too large; one that is no number is."""
    return {name: found for name, (found, allowed) in differences(one, other).items() if not found <= allowed}


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """Begin with larger weights, too: at so small a width the paper's leave attention nothing to choose by.

    Gradients are as small then, and clipped earlier.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(initial, "UNIFORM", 1.0)
        for module in (on_torch, on_mxnet, on_tensorflow):
            patch.setattr(module, "LARGEST_NORM", CLIPPED)
        yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def in_torch(_one_thread: None) -> Trained:
    return TRAIN["torch"](config("fused"), BATCH)


@pytest.mark.parametrize(("framework", "rnn"), CELLS[1:])
def test_every_framework_trains_torchs_fused_network(framework: str, rnn: str, in_torch: Trained) -> None:
    trained = TRAIN[framework](config(rnn), BATCH)

    assert len(in_torch.gradients) == 4 * 3 + 5 + 1
    assert disagreements(trained, in_torch) == {}


@pytest.mark.parametrize(("framework", "rnn"), CELLS)
def test_padding_changes_nothing(framework: str, rnn: str, in_torch: Trained) -> None:
    assert disagreements(TRAIN[framework](config(rnn), WIDER), in_torch) == {}


def test_every_weight_has_a_gradient_the_step_is_clipped_and_the_loss_moves(in_torch: Trained) -> None:
    norms = [float(np.linalg.norm(value)) for value in in_torch.gradients.values()]

    assert min(norms) > 1e-3
    assert np.linalg.norm(norms) > 2 * CLIPPED
    assert abs(in_torch.later_loss - in_torch.loss) > 0.01 * in_torch.loss


def forget_less(workload: on_torch.Workload) -> None:
    with torch.no_grad():
        workload.model.decoder.second.bias_ih[8:16] = 0


def swap_the_first_states(workload: on_torch.Workload) -> None:
    right = workload.model.encoder.forward

    def forward(*given: torch.Tensor) -> tuple[torch.Tensor, tuple[on_torch_network.State, on_torch_network.State]]:
        outputs, states = right(*given)
        return outputs, (states[1], states[0])

    workload.model.encoder.forward = forward


def feed_nothing_back(workload: on_torch.Workload) -> None:
    decoder = workload.model.decoder
    right = decoder.step
    decoder.step = lambda word, attention, *others: right(word, torch.zeros_like(attention), *others)


def attend_to_padding(workload: on_torch.Workload) -> None:
    decoder = workload.model.decoder
    right = decoder.attend
    decoder.attend = lambda query, memory: right(query, memory._replace(padding=torch.zeros_like(memory.padding)))


def clip_less(workload: on_torch.Workload) -> None:
    workload.optimizer.param_groups[0]["lr"] *= 1.001  # as a norm of 1.001 would


@pytest.mark.parametrize(
    ("plant", "seen_in"),
    [
        (forget_less, {"predicted", "loss", "gradients"}),
        (swap_the_first_states, {"predicted", "loss", "gradients"}),
        (feed_nothing_back, {"predicted", "loss", "gradients"}),
        (attend_to_padding, {"predicted", "loss", "gradients"}),
        (clip_less, {"later loss"}),
    ],
)
def test_a_planted_mistake_is_caught(
    plant: Callable[[on_torch.Workload], None], seen_in: set[str], in_torch: Trained
) -> None:
    workload = on_torch.build(SPEC, config("fused"))
    plant(workload)

    assert seen_in <= set(disagreements(train_torch(workload), in_torch))
