"""What a step of WGAN-GP computes and what torch keeps meanwhile: sums over layers."""

from collections.abc import Iterator

import pytest
import torch
from torch_work import counted_flops, saved_by_torch

from tbdprof import suite
from tbdprof.suite.layers import Dense
from tbdprof.suite.wgan import SPEC, architecture, on_torch, products, sample_bytes
from tbdprof.suite.wgan.architecture import Convolution, Normalization

WIDTH = 4


@pytest.fixture(scope="module")
def in_torch() -> on_torch.Workload:
    return on_torch.build(SPEC, suite.configure(SPEC, batch_size=2, options={"width": WIDTH, "critic_steps": 2}))


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def saved_values(width: int) -> int:
    """Return how many values torch keeps of a sample when the critic's loss is about to go backward.

    Scores keep the picture, each normalization's input, mean and deviation and its output (the in-place ReLU's and the
    next convolution's), what is pooled, the pooled maps the shortcut takes and the flattened maps. Of the interpolates'
    scores nothing is kept past the last normalization but what the shortcut takes; their slopes keep two maps, eight
    numbers and three of a channel's for each normalization, what each block's second convolution is given, the last
    block's gradient, the picture's, and two numbers.
    """
    layers = architecture.critic(width)
    norms = [layer for layer in layers if isinstance(layer, Normalization)]
    seconds = [layer for layer in layers if isinstance(layer, Convolution) and layer.name.endswith("conv2")]
    shortcuts = [layer for layer in layers if isinstance(layer, Convolution) and layer.name.endswith("shortcut")]
    flat = next(layer.inputs for layer in layers if isinstance(layer, Dense))
    picture = 3 * 64**2
    normalized = sum(layer.channels * layer.side**2 for layer in norms)
    pooled = sum(layer.outputs * layer.side**2 for layer in seconds)
    shortened = sum(layer.inputs * layer.side**2 for layer in shortcuts)
    scores = picture + 2 * normalized + 2 * len(norms) + pooled + shortened + flat
    interpolates = picture + 2 * normalized + pooled - seconds[-1].outputs * seconds[-1].side ** 2 + shortened
    slopes = 2 * normalized + 8 * len(norms) + 3 * sum(layer.channels for layer in norms) + pooled + flat + picture + 2
    return 2 * scores + interpolates + slopes


def test_the_bytes_of_a_sample_are_what_its_layers_save() -> None:
    for width in (4, 64):
        assert sample_bytes({"width": width}) == 4 * saved_values(width)


def test_torch_saves_what_the_layers_say(in_torch: on_torch.Workload) -> None:
    own = [each for network in in_torch.model for each in network.parameters()]
    noise, coefficients = in_torch.noise(), in_torch.coefficients()
    kept = saved_by_torch(lambda: in_torch.critic_loss(*in_torch.inputs, noise, coefficients), own)
    of_the_batch = 4  # the one by which the slopes' gradients begin

    assert kept == 2 * 4 * saved_values(WIDTH) + of_the_batch


def test_a_steps_flops_are_those_the_profiler_counts(in_torch: on_torch.Workload) -> None:
    assert counted_flops(in_torch) == 2 * products.step_flops(WIDTH, 2, "torch")


def test_a_steps_flops_at_the_papers_width() -> None:
    """Five steps of the critic take 12 products of nearly every layer of it: a step is 30 to 40 times both networks."""
    both = architecture.macs(architecture.generator()) + architecture.macs(architecture.critic())

    assert products.step_flops(framework="torch") - products.step_flops() == 2 * 5 * 2 * 9 * 512 * 512 * 8 * 8
    assert 30 < products.step_flops() / (2 * both) < 40
