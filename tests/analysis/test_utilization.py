"""Utilization, groups and the low-utilization table, on short stories with hand-worked numbers."""

from dataclasses import replace

import pytest
from kernel_stories import PEAKS, US, product, summary_of, training_story
from make import KernelStory, timed_window

from tbdprof.analysis.summary import summarize
from tbdprof.facts.keys import RemarkOn
from tbdprof.facts.records import Operation, Peaks, Phase
from tbdprof.facts.work import Work
from tbdprof.report.json_report import document
from tbdprof.report.terminal import render
from tbdprof.results.reasons import DISTURBED_PEAK, LITTLE_COUNTED, LOW_UTILIZATION


def test_fp32_utilization_is_flops_over_active_time_and_peak():
    use = summary_of(training_story()).utilization

    assert use is not None
    assert use.flop is not None
    assert use.fp32 == use.flop
    assert use.flop.value == pytest.approx(36e6 / (800e-6 * 1e11))  # 0.45 of the time any operator runs
    assert use.flop.bound == pytest.approx(80 / 36)
    assert (use.flop.level, use.flop.precision, use.flop.peak_source) == ("analytic", "fp32", "a probe")
    assert use.flop.coverage == pytest.approx(600 / 800)
    assert use.flops_per_step == 36e6
    assert use.flops_per_sample == 9e6


def test_busy_is_active_time_in_the_kernels_window_over_a_clean_step():
    use = summary_of(training_story()).utilization

    assert use is not None
    assert (use.busy, use.busy_in_window) == pytest.approx((1.0, 0.8))


def test_in_another_precision_there_is_no_fp32_figure_but_its_own():
    summary = summary_of(training_story("bf16"), precision="bf16")
    use = summary.utilization

    assert use is not None
    assert use.flop is not None
    assert use.fp32 is None
    assert use.flop.value == pytest.approx(36e6 / (800e-6 * 4e11))
    assert summary.missing["utilization.fp32_flop"] == "the run computes in bf16"
    assert "utilization.mfu" not in summary.missing


def test_where_nobody_gave_a_precision_it_is_that_of_most_products():
    summary = summary_of(training_story("bf16"), precision=None)
    run = document(summary)["run"]

    assert (run["precision"], summary.utilization.flop.precision) == ("bf16", "bf16")
    assert summary.missing["utilization.fp32_flop"] == "the run computes in bf16"
    assert "run.precision" not in summary.missing


@pytest.mark.parametrize(
    ("asked", "sources", "reason"),
    [
        (None, {}, "the run computes in fp16, and the peak of that is not known: this precision was not "),
        ("fp16", {"fp16": "no probe"}, "the run computes in fp16, and the peak of that is not known: no probe"),
        ("fp32", {}, "fp32 was requested, but most matmuls and convolutions compute in fp16, and the peak of "),
    ],
)
def test_a_peak_that_is_not_known_is_named_with_the_precision_the_report_has(
    asked: str | None, sources: dict[str, str], reason: str
):
    peaks = Peaks({"fp32": 1e11}, None, sources)
    summary = summary_of(training_story("fp16"), precision=asked, peaks=peaks)

    assert summary.missing["utilization.mfu"].startswith(reason)
    assert summary.missing["utilization.fp32_flop"] == summary.missing["utilization.mfu"]
    assert document(summary)["run"]["precision"] == (asked or "fp16")


def test_a_gpus_peak_that_is_in_no_table_is_not_for_want_of_asking():
    peaks = Peaks({"fp32": 1e13}, None, {"fp32": "its clock"}, 1.5e9)
    summary = summary_of(training_story("bf16"), peaks=peaks, precision=None)

    assert summary.missing["utilization.mfu"] == (
        "the run computes in bf16, and the peak of that is not known: the table has no peak for this kind of GPU"
    )


def test_a_run_of_which_no_precision_is_known_says_so():
    story = KernelStory()
    story.settle()
    story.step(0, 100 * US)
    story.operator("scan", Phase.FORWARD, 0, 100 * US)
    summary = summary_of(story, precision=None)

    assert document(summary)["run"]["precision"] is None
    assert summary.missing["run.precision"] == "the loop did not report it"
    assert summary.missing["utilization.mfu"] == "no operator reported a matmul or convolution"


def test_a_run_of_which_no_product_is_counted_says_what_the_hook_says_of_them():
    story = KernelStory()
    story.settle()
    story.step(0, 100 * US)
    story.operator("dot", Phase.FORWARD, 0, 100 * US)
    recording = story.recording(peaks=PEAKS, precision="fp32")
    recording.missing[RemarkOn.KERNEL_COUNTS] = "1 of 1 products take sparse data"
    missing = summarize(recording).missing

    assert missing["run.flops_per_sample"] == "1 of 1 products take sparse data"
    assert missing["utilization.mfu"] == "1 of 1 products take sparse data"


def test_above_the_peak_is_reported_as_it_is_and_marked():
    slow = Peaks({"fp32": 1e10}, None, {"fp32": "a probe that was disturbed"})

    use = summary_of(training_story(), peaks=slow).utilization

    assert use is not None
    assert use.flop is not None
    assert use.flop.value == pytest.approx(4.5)


def test_no_bound_is_told_where_more_than_arithmetic_takes_the_time():
    """Of 1 ms a single product takes 400 µs; of another story it takes all, at a 300,000th of the peak."""
    story = KernelStory()
    story.settle()
    story.step(0, 1000 * US)
    story.operator("linear", Phase.FORWARD, 0, 400 * US, work=product(1_000_000))
    story.operator("scan", Phase.FORWARD, 400 * US, 1000 * US)
    elsewhere = KernelStory()
    elsewhere.settle()
    elsewhere.step(0, 1000 * US)
    elsewhere.operator("linear", Phase.FORWARD, 0, 1000 * US, work=product(300))

    for summary, reason in (
        (summary_of(story), LITTLE_COUNTED),
        (summary_of(elsewhere), LOW_UTILIZATION),
    ):
        assert summary.utilization is not None
        assert summary.utilization.flop is not None
        assert summary.utilization.flop.value is not None
        assert summary.utilization.flop.bound is None
        for path in ("utilization.mfu.bound", "utilization.fp32_flop.bound"):
            assert summary.missing[path] == reason
        assert "up to" not in render(summary).partition("Kernels")[0]


def test_a_disturbed_peak_makes_utilization_an_upper_limit_without_a_bound():
    disturbed = replace(PEAKS, others=0.3)
    summary = summary_of(training_story(), peaks=disturbed)

    assert summary.utilization is not None
    assert summary.utilization.flop is not None
    assert (summary.utilization.flop.at_most, summary.utilization.flop.bound) == (True, None)
    assert "at most 45.0 % while busy" in render(summary)
    assert summary.missing["utilization.mfu.bound"] == DISTURBED_PEAK


def test_without_a_peak_the_reason_is_the_recordings():
    recording = training_story().recording(precision="fp32")
    recording.missing["peaks"] = "the peak of a card is not known"

    summary = summarize(recording)

    assert summary.utilization is not None
    assert (summary.utilization.flop, summary.utilization.flops_per_sample) == (None, 9e6)
    assert summary.low_utilization is None
    for path in ("utilization.fp32_flop", "utilization.mfu", "low_utilization"):
        assert summary.missing[path] == "the peak of a card is not known"
    assert summary.missing["utilization.device_busy"].startswith("the run ended before a clean window")


def test_steps_without_samples_have_no_flops_per_sample_unless_the_batch_is_known():
    alone, known = (summary_of(training_story(), unit="steps", batch_size=size) for size in (None, 2))

    assert alone.utilization is not None
    assert alone.utilization.flops_per_sample is None
    assert alone.missing["run.flops_per_sample"] == "no samples were counted, and no batch size is known"
    assert known.utilization is not None
    assert known.utilization.flops_per_sample == 18e6


@pytest.mark.parametrize(("unit", "batch_size"), [("tokens", None), ("images", None)])
def test_units_that_are_no_samples_are_not_reported_as_such(unit: str, batch_size: int | None):
    summary = summary_of(training_story(), unit=unit, batch_size=batch_size)

    assert summary.utilization is not None
    assert summary.utilization.flops_per_sample is None


@pytest.mark.parametrize("phase", [Phase.UPDATE, Phase.OUTSIDE, Phase.RECOMPUTE, Phase.DATA])
def test_products_beside_forward_and_backward_are_not_the_models(phase: Phase):
    story = KernelStory()
    story.settle()
    story.step(0, 1000 * US)
    story.operator("linear", Phase.FORWARD, 0, 500 * US, work=product(7_000))
    story.operator("orthogonalize", phase, 500 * US, 900 * US, work=product(5_000))

    utilization = summary_of(story).utilization

    assert utilization is not None
    assert utilization.flops_per_step == 7_000
    assert utilization.update_flops_per_step == (5_000 if phase is Phase.UPDATE else 0)


def test_without_a_forward_pass_what_ran_outside_is_the_models():
    story = KernelStory()
    story.settle()
    story.step(0, 1000 * US)
    story.operator("product", Phase.OUTSIDE, 0, 500 * US, work=product(7_000))

    utilization = summary_of(story).utilization

    assert utilization is not None
    assert utilization.flops_per_step == 7_000


def test_groups_have_time_rates_and_the_nearer_ceiling():
    groups = summary_of(training_story()).groups
    assert groups is not None
    backward, linear, relu_group, scan = groups

    assert [group.name for group in groups] == ["linear_backward", "linear", "relu", "scan"]
    assert (linear.phase, linear.operator, linear.operation) == ("forward", "linear", "matmul")
    assert (linear.layers, backward.layers, relu_group.layers) == (("fc",), ("fc",), ())
    assert (linear.calls, linear.seconds, linear.share) == pytest.approx((1, 200e-6, 0.25))
    assert (linear.flops, linear.moved_bytes) == pytest.approx((16e6, 100))
    assert linear.utilization == pytest.approx(0.8)
    assert (linear.intensity, linear.flops_per_s, linear.bytes_per_s) == pytest.approx((160_000, 8e10, 5e5))
    assert (linear.limit, relu_group.limit, scan.limit) == ("compute", "memory", None)
    assert relu_group.intensity == pytest.approx(1 / 8)
    assert (scan.utilization, scan.flops, scan.moved_bytes, scan.precision) == (None, None, None, None)


def test_a_kernel_of_two_phases_is_two_groups_and_names_its_layers_longest_first():
    story = KernelStory()
    story.settle()
    story.step(0, 1000)
    for name, begin, end in (("a", 0, 10), ("b", 10, 40), ("c", 40, 60)):
        layer = story.layer(name, begin, end)
        story.operator("mul", Phase.FORWARD, begin, end, parent=layer)
    story.operator("mul", Phase.BACKWARD, 100, 190)

    groups = summary_of(story).groups

    assert groups is not None
    assert [(group.name, group.phase, group.layers) for group in groups] == [
        ("mul", "backward", ()),
        ("mul", "forward", ("b", "c", "a")),
    ]


def test_the_low_utilization_table_has_what_is_below_the_average_longest_first():
    low = summary_of(training_story()).low_utilization

    assert low is not None
    assert low.average == pytest.approx((16e6 + 20e6 + 0.2e6) / (700e-6 * 1e11))
    assert low.covered == pytest.approx(700 / 800)
    assert [group.name for group in low.rows] == ["linear_backward", "relu"]
    assert low.rows[0].utilization == pytest.approx(0.5)
    assert [group.name for group in low.uncounted] == ["scan"]


def test_without_a_kernels_window_everything_of_it_has_a_reason():
    recording = training_story().recording()
    recording.windows = [timed_window(0, "clean", [1.0, 1.0])]
    recording.missing["kernels"] = "another torch profiler is active"

    summary = summarize(recording)

    assert summary.utilization is summary.step_time is summary.groups is summary.verdict is None
    paths = ("time", "time_by_layer", "kernels", "low_utilization", "verdict", "run.flops_per_sample")
    assert {summary.missing[path] for path in paths} == {"another torch profiler is active"}
    assert summary.missing["utilization.mfu"] == "another torch profiler is active"
    assert "overhead.kernels_window" in summary.missing


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            lambda story: story.steps.pop(),
            "the run ended within the first block of the kernels window, which is discarded as warm-up",
        ),
        (lambda story: story.spans.clear(), "no operator ran in the counted steps of the kernels window"),
    ],
)
def test_a_kernels_window_that_gives_nothing_says_why(change, reason):
    story = KernelStory()
    story.settle()
    story.step(0, 100)
    story.operator("relu", Phase.FORWARD, 0, 10)
    change(story)

    assert summary_of(story).missing["kernels"] == reason


def test_the_cost_of_the_kernels_window_leaves_out_the_block_that_settles():
    kernels = timed_window(2, "kernels", [9.0, 2.0, 2.0], steps_per_block=2)
    recording = KernelStory().recording()
    recording.windows = [timed_window(1, "clean", [1.0, 1.0], steps_per_block=1), kernels]

    summary = summarize(recording)

    assert summary.kernels_overhead is not None
    assert summary.kernels_overhead.ratio == pytest.approx(1.0)
    assert summary.kernels_overhead.interval == pytest.approx((1.0, 1.0))


def test_looking_at_a_summary_twice_gives_the_same():
    recording = training_story().recording(peaks=PEAKS)

    first, second = summarize(recording), summarize(recording)

    assert replace(first, recording=recording) == replace(second, recording=recording)


# Tensor cores do 400 FLOP a nanosecond of bf16, and products alone; all else has 50: ridges at 40 and 5 FLOP a byte.
TENSOR = Peaks({"fp32": 1e11, "bf16": 4e11}, 1e10, {}, 1e9, {"fp32": 1e11, "bf16": 5e10})


def half_story(operation: Operation, work: Work) -> KernelStory:
    """A step of 300 µs: a product in 200 µs, and another operator in 100 µs; both in bf16."""
    story = KernelStory()
    story.settle()
    story.step(0, 300 * US, units=4)
    forward = product(16_000_000, moved_bytes=500_000, precision="bf16")
    story.operator("linear", Phase.FORWARD, 0, 200 * US, operation=Operation.MATMUL, work=forward)
    story.operator("other", Phase.FORWARD, 200 * US, 300 * US, operation=operation, work=work)
    return story


def test_only_products_are_set_against_the_peak_of_tensor_cores():
    relu_work = Work(Operation.ACTIVATION, {"elements": 1_000_000}, name="relu", moved_bytes=100_000, precision="bf16")
    summary = summary_of(half_story(Operation.ACTIVATION, relu_work), peaks=TENSOR, precision="bf16")
    linear, other = summary.groups

    assert (linear.of_product, other.of_product) == (True, False)
    assert linear.utilization == pytest.approx(16e6 / (200e-6 * 4e11))
    assert other.utilization == pytest.approx(1e6 / (100e-6 * 5e10))
    assert (linear.limit, other.limit) == ("memory", "compute")  # 32 FLOP a byte below 40, 10 above 5
    assert summary.low_utilization.average == pytest.approx(17e6 / (200e-6 * 4e11 + 100e-6 * 5e10))
    assert summary.verdict.shares["memory"] == pytest.approx(2 / 3)
    assert summary.utilization.flop.value == pytest.approx(16e6 / (300e-6 * 4e11))  # mfu is of products alone


def test_a_peak_that_is_not_known_without_tensor_cores_leaves_no_utilization():
    relu_work = Work(Operation.ACTIVATION, {"elements": 1_000_000}, name="relu", moved_bytes=100_000, precision="bf16")
    unknown = replace(TENSOR, vector_flops_per_s={"fp32": 1e11})
    linear, other = summary_of(half_story(Operation.ACTIVATION, relu_work), peaks=unknown, precision="bf16").groups

    assert linear.utilization is not None
    assert (other.utilization, other.limit, other.flops) == (None, None, 1e6)


def test_what_shares_a_products_work_is_set_against_the_products_peak():
    """As a softmax amid an attention, whose FLOPs are divided among its kernels by their time."""
    story = KernelStory(device="cuda:0")
    story.settle()
    story.step(0, 300 * US)
    sizes = {"batch": 1, "queries": 10, "keys": 10, "width": 5, "value_width": 5}
    work = Work(Operation.ATTENTION, sizes, precision="bf16")
    around = story.operator("sdpa", Phase.FORWARD, 0, 10, operation=Operation.ATTENTION, work=work)
    inner = story.operator("softmax", Phase.FORWARD, 2, 8, parent=around, operation=Operation.SOFTMAX)
    story.kernel("bmm", 0, 200 * US, span=around)
    story.kernel("softmax", 200 * US, 300 * US, span=inner)
    found = summary_of(story, peaks=TENSOR, precision="bf16")

    assert [group.of_product for group in found.groups] == [True, True]
    assert found.groups[0].utilization == pytest.approx(found.groups[1].utilization)
