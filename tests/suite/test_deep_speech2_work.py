"""What Deep Speech 2 computes and has: sums over layers, by hand and in every framework."""

from collections.abc import Callable
from math import prod

import deep_speech2_trained as trained
import numpy as np
import pytest
import torch

from tbdprof import suite
from tbdprof.suite.deep_speech2 import (
    FULL_PARAMETERS,
    PARAMETERS,
    SPEC,
    architecture,
    on_mxnet,
    products,
    utterances,
)
from tbdprof.suite.deep_speech2.architecture import FULL_WIDTH, WIDTH
from tbdprof.suite.deep_speech2.on_mxnet_network import DeepSpeech2 as InMxnet
from tbdprof.suite.deep_speech2.on_tensorflow_network import DeepSpeech2 as InKeras
from tbdprof.suite.deep_speech2.on_torch_network import DeepSpeech2 as InTorch

NARROW = 8
GRU = (
    32 * 1 * 11 * 41 + 64  # first convolution and its normalization
    + 32 * 32 * 11 * 21 + 64
    + 2 * 3 * 256 * (32 * 41 + 256 + 2) + 512  # both directions: three gates, inputs, state, two biases
    + 4 * (2 * 3 * 256 * (256 + 256 + 2) + 512)
    + 256 * 257 + 29 * 257
)  # fmt: skip


def of_torch(width: int, cell: str, rnn: str) -> list[tuple[int, ...]]:
    with torch.device("meta"):
        model = InTorch(width, cell, rnn)
    if cell == "gru":
        return [tuple(each.shape) for each in model.parameters()]
    return [tuple(each.shape) for name, each in model.named_parameters() if "bias_hh" not in name]


def of_mxnet(width: int, cell: str, rnn: str) -> list[tuple[int, ...]]:
    return [parameter.shape for parameter in on_mxnet.trained(InMxnet(width, cell, rnn))]


def of_keras(width: int, cell: str, rnn: str) -> list[tuple[int, ...]]:
    model = InKeras(width, cell, rnn)
    model.build()
    return [tuple(each.shape) for each in model.trainable_variables]


FRAMEWORKS = {"torch": of_torch, "mxnet": of_mxnet, "tensorflow": of_keras}


def test_the_parameters_are_the_sum_over_the_layers() -> None:
    assert GRU == PARAMETERS == architecture.parameters(WIDTH) == SPEC.parameters == 5_896_445
    assert architecture.parameters(FULL_WIDTH) == FULL_PARAMETERS == 184_649_853
    assert architecture.parameters(FULL_WIDTH, "rnn") == 63_811_773
    assert architecture.redundant_biases(FULL_WIDTH, "rnn") == 5 * 2 * 1760


@pytest.mark.parametrize("width", [NARROW, FULL_WIDTH])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_framework_has_as_many_at_any_width(framework: str, width: int) -> None:
    shapes: Callable[[int, str, str], list[tuple[int, ...]]] = FRAMEWORKS[framework]
    every = [(cell, rnn) for cell in ("gru", "rnn") for rnn in ("fused", "cell")]
    kinds = every[:1] if framework == "tensorflow" and width == FULL_WIDTH else every  # its shapes have memory: 740 MB

    for cell, rnn in kinds:
        assert sum(map(prod, shapes(width, cell, rnn))) == architecture.parameters(width, cell)


@pytest.mark.parametrize("framework", ["torch", "mxnet"])
def test_a_plain_cells_second_bias_is_zero_and_stays_so(framework: str) -> None:
    config = suite.configure(SPEC, seed=1, options={"cell": "rnn", "longest": 1})
    workload = trained.build(framework, config)
    workload.step()

    if framework == "torch":
        second = [each for name, each in workload.model.named_parameters() if "bias_hh" in name]
        assert not any(each.requires_grad for each in second)
        assert sum(each.numel() for each in second) == architecture.redundant_biases(WIDTH, "rnn")
        assert not any(each.any() for each in second)
    else:
        found = workload.model.collect_params(".*h2h_bias").values()
        assert sum(prod(each.shape) for each in found) == architecture.redundant_biases(WIDTH, "rnn")
        assert not any(each.data().asnumpy().any() for each in found)


def test_the_work_of_a_step_is_that_of_its_true_and_padded_places_by_hand() -> None:
    # 5 and 2 frames are 3 and 1 places: 4 true ones of 6. Width 2, plain cells.
    convolutions = 2 * 6 * (32 * 11 * 41) * 81 + 3 * 6 * (32 * 32 * 11 * 21) * 41
    dense = 3 * 4 * (2 * 2 + 2 * 29)
    first, other = 2 * (32 * 41 + 2), 2 * (2 + 2)
    in_torch = convolutions + dense + 3 * 4 * 2 * (first + 4 * other) - 5 * (2 + 1) * 2 * 2
    padded = convolutions + dense + 3 * 6 * 2 * (first + 4 * other)

    assert products.batch_macs([5, 2], 2, "rnn", "fused", "torch") == in_torch
    assert products.batch_macs([5, 2], 2, "rnn", "cell", "torch") == in_torch
    assert products.batch_macs([5, 2], 2, "rnn", "fused", "mxnet") == padded
    assert products.batch_macs([5, 2], 2, "rnn", "cell", "mxnet") == padded - 5 * 2 * 2 * 2 * 2
    assert products.batch_macs([5, 2], 2, "rnn", "fused", "tensorflow") == padded


def test_a_samples_flops_are_the_mean_over_a_period() -> None:
    config = suite.configure(SPEC, batch_size=3, seed=1, options={"longest": 1})
    period = utterances.frames(config)

    total = sum(products.batch_macs(frames, 256, "gru", "fused", "torch") for frames in period)
    assert SPEC.sample_flops(config, "torch") == 2 * total / 12
    assert [len(frames) for frames in period] == [3] * 4


def test_both_kinds_of_recurrent_layer_begin_with_the_same_weights() -> None:
    for framework in trained.MODULES:
        for cell in ("gru", "rnn"):
            fused, stepwise = (
                trained.weights(
                    framework,
                    trained.build(framework, suite.configure(SPEC, options={"cell": cell, "rnn": rnn, "longest": 1})),
                )
                for rnn in ("fused", "cell")
            )
            assert all(np.array_equal(fused[name], stepwise[name]) for name in fused)
            assert sum(each.size for each in fused.values()) == architecture.parameters(WIDTH, cell)
