"""What a step of Seq2Seq computes is a sum over its layers, at every position of a batch, in each framework."""

from collections.abc import Iterator

import pytest
import torch
from seq2seq_trained import BATCH
from torch.utils.flop_counter import FlopCounterMode

from tbdprof import suite
from tbdprof.suite.data.text.buckets import Sentences
from tbdprof.suite.data.text.corpora import IWSLT15
from tbdprof.suite.data.text.translation import synthetic
from tbdprof.suite.seq2seq import SPEC, on_torch, products
from tbdprof.suite.seq2seq.products import ENCODINGS, Encoding, step_flops
from tbdprof.suite.workload import PERIOD

WIDTH = 8
# The batch has 3 sentences: sources of 5, 2 and 4 words, filled up to 5, and targets filled up to 6 with their ends.
PLACES, WORDS, TARGETS = 15, 11, 18
OF_A_STEP = 4 * WIDTH * WIDTH  # multiply-accumulates of a state


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_a_steps_flops_by_hand() -> None:
    """Three products of every layer: the encoder's cells and keys at the source's places, all else at the target's."""
    encoder = 2 * (OF_A_STEP + OF_A_STEP)
    keys = 2 * WIDTH * WIDTH
    decoder = (2 * OF_A_STEP + OF_A_STEP) + (OF_A_STEP + OF_A_STEP) + 3 * WIDTH * WIDTH + WIDTH * 7_709
    attention = 3 * 6 * 5 * (WIDTH + 2 * WIDTH)

    assert step_flops(BATCH, WIDTH, Encoding()) == 2 * 3 * (PLACES * (encoder + keys) + TARGETS * decoder + attention)


def test_what_the_encoder_does_without_depends_on_the_framework() -> None:
    """By hand: packed, 4 places of padding less, and of the states before the first steps 3 ahead and 1 back."""
    every = step_flops(BATCH, WIDTH, Encoding())
    differences = {
        (framework, rnn): (step_flops(BATCH, WIDTH, encoding) - every) // 2
        for framework, kinds in ENCODINGS.items()
        for rnn, encoding in kinds.items()
    }
    cells = 2 * 2 * OF_A_STEP

    assert differences == {
        ("torch", "fused"): -3 * (PLACES - WORDS) * cells - (3 + 1) * OF_A_STEP,
        ("torch", "cell"): -(3 + 3) * OF_A_STEP,
        ("mxnet", "fused"): 3 * PLACES * 2 * 4 * WIDTH,  # a column for padding
        ("mxnet", "cell"): -(3 + 3) * OF_A_STEP,
        ("tensorflow", "fused"): 0,
        ("tensorflow", "cell"): 0,
    }


@pytest.mark.parametrize("rnn", ["fused", "cell"])
def test_torch_computes_the_sum(rnn: str) -> None:
    config = suite.configure(SPEC, batch_size=3, options={"width": WIDTH, "rnn": rnn})
    workload = on_torch.build(SPEC, config)
    with FlopCounterMode(display=False) as counter:
        workload.update(on_torch.on_device(BATCH, config))

    assert counter.get_total_flops() == step_flops(BATCH, WIDTH, ENCODINGS["torch"][rnn])


def test_a_samples_flops_are_the_mean_over_a_period_with_its_padding() -> None:
    config = suite.configure(SPEC, batch_size=3, seed=4)
    drawn = synthetic(IWSLT15, Sentences(3), 4, PERIOD)
    steps = [step_flops(batch, 512, ENCODINGS["mxnet"]["fused"]) for batch in drawn]

    assert len(set(steps)) > 1
    assert SPEC.sample_flops(config, "mxnet") == products.sample_flops(config, "mxnet") == sum(steps) / (4 * 3)
    assert SPEC.period == PERIOD == 4
