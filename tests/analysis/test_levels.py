"""The levels side by side, worked out by hand on the step of `test_counted`'s kind: like is compared with like."""

from dataclasses import replace

import pytest
from make import KernelStory

from tbdprof.analysis.device.levels import levels
from tbdprof.analysis.kernels.executions import gather
from tbdprof.analysis.kernels.kernels import Kernels
from tbdprof.facts.records import KernelKind, Operation, Peaks, Phase
from tbdprof.facts.work import Work
from tbdprof.results.kernels import Counted, CountedKernels
from tbdprof.results.levels import Agreement, Levels, Pipes

SECOND = 1_000_000_000
PEAKS = Peaks({"fp32": 100.0}, None, {})
GRID, BLOCK = "[1, 1, 1]", "[32, 1, 1]"
PRODUCT = Work(Operation.MATMUL, {"batch": 1, "rows": 10, "columns": 2, "inner": 4}, precision="fp32")  # 160 FLOP
RELU = Work(Operation.ACTIVATION, {"elements": 40}, name="relu", precision="fp32")  # 40 FLOP
GEMM_KEY, RELU_KEY = ("gemm", GRID, BLOCK), ("relu", GRID, BLOCK)
GEMM = CountedKernels(GEMM_KEY, 1.0, 4.0, 0.8, 1, 200.0, {}, None, 0.5, 0.0, 0.5, None, 0.5)
ADD = CountedKernels(RELU_KEY, 1.0, 1.0, 0.2, 1, 10.0, {}, None, 0.1, 0.0, 0.1, None, 0.1)
EXACT = Counted(2, 210.0, {}, None, 200.0, 0.42, None, 0.42, (GEMM, ADD), (), 0.0, 0, ())
SAMPLED = {GEMM_KEY: Pipes(0.515, 0.0, 0.4), RELU_KEY: Pipes(0.2, 0.0, 0.1)}


def kernels() -> Kernels:
    """Return a step in which a product takes 4 s and an activation 1 s."""
    story = KernelStory(device="cuda:0")
    story.settle()
    story.step(0, 6 * SECOND)
    product = story.operator("mm", Phase.FORWARD, 0, 10, operation=Operation.MATMUL, work=PRODUCT)
    relu = story.operator("relu", Phase.FORWARD, 10, 20, operation=Operation.ACTIVATION, work=RELU)
    story.kernel("relu", 0, SECOND, span=relu, grid=GRID, block=BLOCK)
    story.kernel("gemm", SECOND, 5 * SECOND, span=product, grid=GRID, block=BLOCK)
    found = gather(story.recording())
    assert found is not None
    return found


def result(counted: Counted | None = EXACT, sampled: dict[tuple[str, str, str], Pipes] = SAMPLED) -> Levels:
    found = levels(kernels(), PEAKS, counted, sampled, Pipes(0.45, 0.0), 0.4)
    assert found is not None
    return found


def test_a_kernel_is_reported_at_each_level_the_longest_first() -> None:
    gemm, relu = result().rows

    assert (gemm.key, gemm.share, gemm.is_product) == (GEMM_KEY, 0.8, True)
    assert gemm.analytic_flop == pytest.approx(160 / (100 * 4))
    assert gemm.counted_flop == 0.5
    assert gemm.flop_difference == pytest.approx(-0.1)
    assert gemm.fp32_difference == pytest.approx(0.015), "the upper bounds, of one pipe"
    assert relu.fp32_difference == pytest.approx(0.1)


def test_what_is_no_product_is_set_against_the_peak_without_tensor_cores() -> None:
    both = Peaks({"fp32": 400.0}, None, {}, None, {"fp32": 100.0})
    found = levels(kernels(), both, None, SAMPLED, Pipes())

    assert found is not None
    assert [row.analytic_flop for row in found.rows] == pytest.approx([160 / (400 * 4), 40 / (100 * 1)])


def test_flops_are_compared_of_products_alone() -> None:
    _, relu = result().rows

    assert relu.analytic_flop == pytest.approx(0.4)
    assert relu.flop_difference is None, "what is counted per element is a convention"


def test_how_many_agree_is_reported_with_the_worst() -> None:
    found = {each.what.partition(" ")[0]: each for each in result().agreements}

    assert found["FP32"] == Agreement("FP32 pipe, sampled against counted", 1, 2, 0.02, pytest.approx(0.1))
    assert (found["tensor"].within, found["tensor"].of) == (2, 2)
    assert (found["FLOPs"].within, found["FLOPs"].of, found["FLOPs"].bound) == (0, 1, 0.05)


def test_the_whole_is_weighted_by_time() -> None:
    found = result()

    assert found.sampled.fp32 == pytest.approx((4 * 0.515 + 1 * 0.2) / 5)
    assert found.sampled.fp32_low == pytest.approx((4 * 0.4 + 1 * 0.1) / 5)
    assert found.counted.fp32 == pytest.approx((4 * 0.5 + 1 * 0.1) / 5)
    assert (found.analytic_flop, found.counted_flop, found.device.fp32) == (0.4, 0.42, 0.45)


def test_a_level_that_is_not_there_is_not_compared() -> None:
    sampled_alone = result(counted=None)

    assert sampled_alone.agreements == ()
    assert sampled_alone.rows[0].counted == Pipes()
    assert sampled_alone.counted_flop is None
    assert [each.what for each in result(sampled={}).agreements] == ["FLOPs of products, analytic against counted"]
    assert levels(kernels(), PEAKS, None, {}, Pipes(0.4)) is None, "one level has no judge"
    assert levels(None, PEAKS, EXACT, SAMPLED, Pipes()) is None


def test_a_copy_by_the_driver_is_no_kernel_to_compare() -> None:
    story = KernelStory(device="cuda:0")
    story.settle()
    story.step(0, 6 * SECOND)
    story.kernel("Memcpy HtoD", 0, 4 * SECOND, kind=KernelKind.COPY)
    story.kernel("gemm", 4 * SECOND, 5 * SECOND, grid=GRID, block=BLOCK)

    found = levels(gather(story.recording()), PEAKS, EXACT, SAMPLED, Pipes())

    assert found is not None
    assert [row.key[0] for row in found.rows] == ["gemm"]


def test_a_kernel_without_a_value_is_left_out_of_the_comparison() -> None:
    unknown = replace(EXACT, kernels=(replace(GEMM, fp32_pipe=None, flop_utilization=None), ADD))

    found = result(unknown)

    assert found.rows[0].fp32_difference is None
    assert [(each.within, each.of) for each in found.agreements] == [(0, 1), (2, 2)]
