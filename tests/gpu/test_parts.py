"""The parts of the GPU checks that need no GPU: recordings cut short, ratios of pairs, sizes in names."""

from dataclasses import replace

import numpy as np
import pytest
from gpu import cost, fixtures, nets, products
from make import KernelStory, MemoryStory, timed_window

from tbdprof.analysis.kernels.executions import gather
from tbdprof.analysis.memory.breakdown import measure
from tbdprof.analysis.summary import summarize
from tbdprof.facts.records import Peaks, Phase
from tbdprof.results.device import Clock, Device
from tbdprof.results.kernels import Counted, CountedKernels
from tbdprof.results.levels import KernelLevels, Levels, Pipes


def test_a_recording_cut_short_has_whole_steps_and_its_text() -> None:
    story = KernelStory(device="cuda:0")
    for step in range(6):
        story.step(100 * step, 100 * step + 90, block=step // 2)
        span = story.operator(f"op {step}", Phase.FORWARD, 100 * step, 100 * step + 20)
        story.kernel(f"kernel {step}", 100 * step + 10, 100 * step + 60, span=span, grid="[1, 1, 1]")
    recording = story.recording()

    short = fixtures.cut(recording, 2)

    (window,) = short.windows
    assert window.table("step")["index"].tolist() == [0, 2], "the first of two blocks, one of which settles"
    assert [short.strings[index] for index in window.table("kernel")["name"]] == ["kernel 0", "kernel 2"]
    assert {short.strings[index] for index in window.table("kernel")["grid"]} == {"[1, 1, 1]"}
    assert "kernel 1" not in short.strings.since(0)
    kernels = gather(short)
    assert kernels is not None
    assert kernels.strings[int(kernels.operator[0])] == "op 2"


def test_a_memory_window_cut_short_still_adds_up() -> None:
    story = MemoryStory(base_total=100)
    story.existing(100)
    for _ in range(3):
        with story.phase(Phase.FORWARD):
            block = story.allocate(40)
        story.free(block)
        story.mark()
    whole = story.recording()

    short = fixtures.cut(whole, 2)

    memory = measure(short).value
    assert memory is not None
    assert len(short.windows[0].table("step")) == 2
    assert memory.mismatches == 0
    assert len(short.windows[0].table("allocation")) == 5


def test_memory_is_kept_apart_from_what_takes_time() -> None:
    recording = KernelStory().recording()
    recording.windows = [timed_window(place, name, [0.1]) for place, name in enumerate(("warmup", "clean", "memory"))]

    parts = fixtures.parted(recording)

    assert {part: [window.name for window in each.windows] for part, each in parts.items()} == {
        "memory": ["memory"],
        "time": ["clean"],
    }


def test_what_cannot_be_made_small_is_not_kept(tmp_path) -> None:
    story = KernelStory(device="cuda:0")
    story.settle()
    story.step(0, 10)

    assert fixtures.trimmed(story.recording(), tmp_path / "a.tbd", most_bytes=10) is None
    assert not (tmp_path / "a.tbd").exists()
    assert fixtures.trimmed(story.recording(), tmp_path / "a.tbd") == (tmp_path / "a.tbd").stat().st_size


def test_a_clean_window_keeps_a_step_a_block() -> None:
    recording = KernelStory().recording()
    recording.windows = [timed_window(0, "clean", [0.1] * 8, steps_per_block=2)]

    assert len(fixtures.cut(recording, 3).windows[0].table("step")) == 3


def test_ratios_are_of_pairs_with_their_interval() -> None:
    found = cost.ratios({"bare": [1.0, 2.0, 1.0, 2.0], "kernels": [1.1, 2.2, 1.1, 2.2]})

    assert found["kernels"] == pytest.approx((1.1, 1.1, 1.1))
    assert found["bare"] == pytest.approx((1.0, 1.0, 1.0))


def test_arms_take_turns_until_the_time_is_up() -> None:
    taken: list[str] = []
    left = iter([True, True, False])

    times = cost.interleaved(
        {name: lambda name=name: taken.append(name) or 1.0 for name in ("bare", "clean")}, 30, lambda: next(left)
    )

    assert {name: len(each) for name, each in times.items()} == {"bare": 2, "clean": 2}
    assert sorted(taken[:2]) == ["bare", "clean"]


def test_a_product_is_named_by_its_size() -> None:
    assert nets.flops(nets.named((10, 2, 4))) == 160
    assert np.isclose(nets.flops("4096by4096by4096"), 2 * 4096**3)


def test_a_product_is_reported_by_arithmetic_at_the_measured_clock_and_by_each_level() -> None:
    story = KernelStory(device="cuda:0")
    story.settle()
    story.step(0, 10**9)
    layer = story.layer("10by2by4", 0, 100)
    span = story.operator("aten::mm", Phase.FORWARD, 0, 100, parent=layer)
    for turn in range(nets.TIMES):  # 160 FLOP in 2 s on a card of 200 FLOP/s at twice the clock it ran at
        story.kernel("gemm", turn * 10**8, turn * 10**8 + 2 * 10**9, span=span, grid="[1, 1, 1]", block="[32, 1, 1]")
    recording = story.recording(peaks=Peaks({"fp32": 200.0}, None, {}, clock_hz=2e9))
    key = ("gemm", "[1, 1, 1]", "[32, 1, 1]")
    row = KernelLevels(key, 16.0, 1.0, True, None, None, Pipes(0.79), Pipes(0.85))
    clocks = Device({}, None, {}, {"kernels": Clock(1e9, 1e9, 1e9)}, 2e9, {}, {}, {}, None)
    exact = CountedKernels(key, 8.0, 16.0, 1.0, 8, 8 * 176.0, {}, None, 0.85, 0.0, 0.4, None, 0.4)
    summary = replace(
        summarize(recording),
        levels=Levels((row,), (), None, None, Pipes(), Pipes(), Pipes()),
        device=clocks,
        counted=Counted(8, None, {}, None, None, None, None, None, (exact,), (), 0.0, 0, ()),
    )

    found = products.at_each_level(summary, gather(recording), "fp32", "9.0")

    assert found == {
        "10by2by4": {
            "kernel": "gemm",
            "arithmetic": pytest.approx(160 / (200 / 2 * 2)),
            "sampled": 0.79,
            "counted": 0.85,
            "counted FLOPs over the definition's": pytest.approx(1.1),
            "seconds": pytest.approx(2.0),
        }
    }
    assert products.agreements(found["10by2by4"]) == {
        "sampled within 2 points of arithmetic": True,
        "sampled within 2 points of counted": False,
    }


@pytest.mark.parametrize(
    ("kernel", "share"),
    [
        ("sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize160x128x32", 2 / 3),
        ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4>(cutlass::Params)", 2 / 3),
        ("ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_nn", 2 / 3),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1", 1.0),
        ("void cutlass::device_kernel<cutlass3x_sm90_tensorop_h64x128x16gemm>(Params)", 1.0),
        ("nvjet_tst_128x256_64x4_2x1_v_bz_coopA_NNT", 1.0),
    ],
)
def test_a_kernel_of_an_older_device_fills_its_pipe_at_two_thirds_of_hopper_s_peak(kernel: str, share: float) -> None:
    assert products.share_of_peak(kernel, "bf16", "9.0") == share
    assert products.share_of_peak(kernel, "bf16", "8.0") == 1.0
    assert products.share_of_peak(kernel, "fp32", "9.0") == 1.0, "no tensor pipe computes it"
