"""What an update of A3C computes and what torch keeps meanwhile: sums over layers."""

from collections.abc import Iterator

import pytest
import torch
from a3c_trained import recorded
from torch_work import counted_flops, saved_by_torch

from tbdprof import suite
from tbdprof.suite.a3c import PARAMETERS, SPEC, on_torch, products, sample_bytes
from tbdprof.suite.a3c.architecture import CONV1, CONV2, DENSE, LAYERS, POLICY, macs
from tbdprof.suite.a3c.training import Workload

STEPS = 5


@pytest.fixture
def in_torch() -> Workload:
    return on_torch.build(SPEC, suite.configure(SPEC, options={"actors": 1}))


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_the_work_of_a_forward_pass_is_the_sum_over_the_layers() -> None:
    assert [layer.macs for layer in LAYERS] == [
        16 * 4 * 8 * 8 * 20 * 20,
        32 * 16 * 4 * 4 * 9 * 9,
        32 * 9 * 9 * 256,
        256 * 6,
        256,
    ]
    assert macs() == 2_967_296


def test_an_update_plays_its_steps_asks_for_one_value_and_goes_forward_and_backward_once() -> None:
    """Six forward passes of one observation and one of five; backward twice of each layer, but once of the first."""
    forward = 1_638_400 + 663_552 + 663_552 + 1_536 + 256
    assert products.update_flops(5) == 2 * (6 * forward + 5 * forward + 5 * (1_638_400 + 2 * (forward - 1_638_400)))
    for framework in suite.frameworks("a3c"):
        config = suite.configure(SPEC, batch_size=5)
        assert SPEC.sample_flops(config, framework) == pytest.approx(108_242_432 / 5)


def test_an_updates_flops_are_those_the_profiler_counts(in_torch: Workload) -> None:
    assert counted_flops(in_torch) == products.update_flops(STEPS)


def saved_bytes() -> int:
    """Return how many bytes torch keeps of a step when an update is about to go backward.

    The observation, what each of the first three layers puts out (its ReLU works in place), the logarithms of the
    policy, the policy itself, the advantage, and the action in a whole number of 8 bytes.
    """
    observation = 4 * 84 * 84
    maps = CONV1.outputs * CONV1.side**2 + CONV2.outputs * CONV2.side**2 + DENSE.outputs
    return 4 * (observation + maps + 2 * POLICY.outputs + 1) + 8


def test_the_bytes_of_a_step_are_what_its_layers_save() -> None:
    assert sample_bytes({"actors": 1}) == saved_bytes()
    assert sample_bytes({"actors": 3}) == 3 * saved_bytes()
    assert SPEC.fixed_bytes == (3 + 2 + 1) * 4 * PARAMETERS  # at the default of two actors


def test_torch_saves_what_the_layers_say(in_torch: Workload) -> None:
    own = [each for network in in_torch.model for each in network.parameters()]  # type: ignore[attr-defined]
    (agent,) = in_torch.agents
    assert isinstance(agent, on_torch.Agent)

    assert saved_by_torch(lambda: agent.loss(recorded()), own) == STEPS * saved_bytes()
