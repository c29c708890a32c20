"""What a step of the Transformer computes and what torch keeps meanwhile: sums over layers."""

import weakref
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch

from tbdprof import suite
from tbdprof.analysis.kernels.flops import count
from tbdprof.facts.records import Strings
from tbdprof.facts.work import parse
from tbdprof.hooks.on_torch import hook
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
    torch_hook = hook()
    torch_hook.attach()
    torch_hook.watch([in_torch.model], [in_torch.optimizer])
    try:
        torch_hook.start("kernels")
        for _ in range(SPEC.period):
            in_torch.step()
            torch_hook.mark_step()
        torch_hook.stop()
        strings = Strings()
        spans = torch_hook.drain(strings).tables["span"]
    finally:
        torch_hook.close()
    parents = {int(row["id"]): row for row in spans}
    counted = 0
    for row in spans[spans["work"] >= 0]:
        around = row["parent"]
        while around >= 0 and parents[int(around)]["work"] < 0:
            around = parents[int(around)]["parent"]
        flops = count(parse(strings[row["work"]])) if around < 0 else None
        counted += flops.model if flops else 0

    assert counted == sum(step_flops(sizes_of(SMALL.options), batch) for batch in shapes(SMALL))


@dataclass(eq=False)
class Kept:
    tensor: torch.Tensor


def test_torch_keeps_what_the_layers_say(in_torch: on_torch.Workload) -> None:
    own = [*in_torch.model.parameters(), *in_torch.model.buffers()]
    weights = {each.untyped_storage().data_ptr() for each in own}
    alive: weakref.WeakSet[Kept] = weakref.WeakSet()

    def pack(tensor: torch.Tensor) -> Kept:
        kept = Kept(tensor.detach())
        alive.add(kept)
        return kept

    batch = next(in_torch.batches)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda kept: kept.tensor):
        loss = in_torch.loss(batch)
    storages = {storage.data_ptr(): storage.nbytes() for storage in (kept.tensor.untyped_storage() for kept in alive)}

    assert loss.ndim == 0
    shape = Shape(*batch.source.shape, batch.target.shape[1])
    kept = sum(size for at, size in storages.items() if at not in weights)
    assert kept == kept_bytes(sizes_of(SMALL.options), shape) + OF_A_BATCH


def test_the_bytes_of_a_sample_are_those_of_32_tokens_on_each_side() -> None:
    options = suite.configure(SPEC).options

    assert sample_bytes(options) == kept_bytes(Sizes(), Shape(1, 32, 32))
    assert sample_bytes(options) > 4 * 32 * 37_000  # the words' shares alone
