"""What a step of the Transformer computes and what torch keeps meanwhile: sums over layers."""

from collections.abc import Iterator

import pytest
import torch
from torch_work import counted_flops, saved_by_torch

from tbdprof import suite
from tbdprof.suite.transformer import SPEC, on_torch, sample_bytes
from tbdprof.suite.transformer.architecture import Shape, Sizes, layers, macs, sizes_of
from tbdprof.suite.transformer.products import flops_per_sentence, kept_bytes, step_flops
from tbdprof.suite.transformer.sentences import shapes

SMALL = suite.configure(SPEC, batch_size=4, options={"width": 16, "layers": 2, "vocabulary": 50})
OF_A_BATCH = 4 + 8  # the sum of the weights of the targets that count, and of how many do


@pytest.fixture(scope="module")
def in_torch() -> on_torch.Workload:
    return on_torch.build(SPEC, SMALL)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_the_work_of_a_forward_pass_is_the_sum_over_the_layers() -> None:
    """By hand, for 3 sentences of 5 source and 7 target places at the paper's sizes."""
    encoder = 5 * (4 * 512**2 + 2 * 512 * 2048) + 2 * 5 * 5 * 512
    decoder = 7 * (4 * 512**2 + 2 * 512 * 2048) + 2 * 7 * 7 * 512
    across = 7 * 2 * 512**2 + 5 * 2 * 512**2 + 2 * 7 * 5 * 512
    scores = 7 * 37_000 * 512

    assert macs(layers(), Shape(3, 5, 7)) == 3 * (6 * (encoder + decoder + across) + scores)
    assert step_flops(Sizes(), Shape(3, 5, 7)) == 6 * macs(layers(), Shape(3, 5, 7))


def test_flops_of_a_sentence_are_those_of_a_whole_period() -> None:
    sizes, period = sizes_of(SMALL.options), shapes(SMALL)
    steps = [step_flops(sizes, batch) for batch in period]

    assert len(period) == SPEC.period == 4
    assert len(set(steps)) == 4
    assert flops_per_sentence(SMALL) == sum(steps) / sum(batch.sentences for batch in period)
    assert {SPEC.sample_flops(SMALL, framework) for framework in suite.frameworks("transformer")} == {
        flops_per_sentence(SMALL)
    }


def test_a_steps_flops_are_those_the_profiler_counts(in_torch: on_torch.Workload) -> None:
    assert counted_flops(in_torch, SPEC.period) == sum(
        step_flops(sizes_of(SMALL.options), batch) for batch in shapes(SMALL)
    )


def test_torch_keeps_what_the_layers_say(in_torch: on_torch.Workload) -> None:
    own = [*in_torch.model.parameters(), *in_torch.model.buffers()]
    batch = next(in_torch.batches)
    kept = saved_by_torch(lambda: in_torch.loss(batch), own)
    shape = Shape(*batch.source.shape, batch.target.shape[1])

    assert kept == kept_bytes(sizes_of(SMALL.options), shape) + OF_A_BATCH


def test_the_bytes_of_a_sample_are_those_of_32_tokens_on_each_side() -> None:
    options = suite.configure(SPEC).options

    assert sample_bytes(options) == kept_bytes(Sizes(), Shape(1, 32, 32))
    assert sample_bytes(options) > 4 * 32 * 37_000  # the words' shares alone
