"""Utilization, groups, the low-utilization table and the verdict, on short stories with hand-worked numbers."""

from dataclasses import replace

import pytest
from make import KernelStory, timed_window

from tbdprof.analysis.summary import Summary, summarize
from tbdprof.records import KernelKind, Operation, Peaks, Phase
from tbdprof.work import Work

# 100 FLOP and 10 bytes a nanosecond: the ridge is at 10 FLOP a byte.
PEAKS = Peaks({"fp32": 1e11, "bf16": 4e11}, 1e10, {"fp32": "a probe", "bf16": "the same", "memory": "another"})
US = 1000


def product(flops: int, moved_bytes: int | None = 100, precision: str = "fp32") -> Work:
    sizes = {"batch": 1, "rows": 1, "columns": 1, "inner": flops // 2}
    return Work(Operation.MATMUL, sizes, moved_bytes=moved_bytes, precision=precision)


def relu(elements: int) -> Work:
    return Work(Operation.ACTIVATION, {"elements": elements}, name="relu", moved_bytes=8 * elements)


def training_story(precision: str = "fp32") -> KernelStory:
    """Two steps of 1 ms: products 200 µs and 400 µs, batch_norm 100 µs, relu 100 µs, something else 100 µs."""
    story = KernelStory()
    story.settle()
    for start in (0, 1000 * US):
        story.step(start, start + 1000 * US, units=4)
        fc = story.layer("fc", start + 50 * US, start + 250 * US)
        work = product(16_000_000, precision=precision)
        story.operator("linear", Phase.FORWARD, start + 50 * US, start + 250 * US, parent=fc, forward=7, work=work)
        story.operator("relu", Phase.FORWARD, start + 250 * US, start + 350 * US, work=relu(200_000))
        story.operator("scan", Phase.FORWARD, start + 350 * US, start + 450 * US)
        work = product(20_000_000, precision=precision)
        backward = (start + 450 * US, start + 850 * US)
        story.operator("linear_backward", Phase.BACKWARD, *backward, forward=7, work=work)
    return story


def summary_of(story: KernelStory, **run_changes: object) -> Summary:
    recording = story.recording(**{"peaks": PEAKS, "precision": "fp32", **run_changes})
    recording.windows.append(timed_window(1, "clean", [0.0008, 0.0008], units=4))
    return summarize(recording)


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


def test_above_the_peak_is_told_as_it_is_and_marked():
    slow = Peaks({"fp32": 1e10}, None, {"fp32": "a probe that was disturbed"})

    use = summary_of(training_story(), peaks=slow).utilization

    assert use is not None
    assert use.flop is not None
    assert use.flop.value == pytest.approx(4.5)


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
    assert alone.missing["run.flops_per_sample"] == "no samples were counted, and no batch size was told"
    assert known.utilization is not None
    assert known.utilization.flops_per_sample == 18e6


@pytest.mark.parametrize(("unit", "batch_size"), [("tokens", None), ("images", None)])
def test_units_that_are_no_samples_are_not_told_as_such(unit: str, batch_size: int | None):
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
        (lambda story: story.steps.pop(), "the run ended within the first block of the kernels window, which settles"),
        (lambda story: story.spans.clear(), "no operator ran in the counted steps of the kernels window"),
    ],
)
def test_a_kernels_window_that_tells_nothing_says_why(change, reason):
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


def starved() -> KernelStory:
    """620 µs until the batch is there, then 380 µs of products."""
    story = KernelStory()
    story.settle()
    story.step(0, 1000 * US)
    story.operator("linear", Phase.FORWARD, 620 * US, 800 * US, work=product(10_000_000))
    story.operator("linear", Phase.BACKWARD, 800 * US, 1000 * US, work=product(10_000_000))
    return story


def tiny() -> KernelStory:
    """A hundred operators of 3 µs with 7 µs between them."""
    story = KernelStory()
    story.settle()
    story.step(0, 1000 * US)
    for place in range(100):
        begin = 10 * US * place
        story.operator("add", Phase.FORWARD, begin, begin + 3 * US, work=relu(4))
    return story


def evaluating() -> KernelStory:
    """A teacher runs before the model's forward pass: no batch is waited for."""
    story = KernelStory()
    story.settle()
    story.step(0, 1000 * US)
    story.operator("teacher", Phase.OUTSIDE, 0, 900 * US, work=product(10_000_000))
    story.operator("linear", Phase.FORWARD, 900 * US, 1000 * US, work=product(1_000_000))
    return story


def logging() -> KernelStory:
    """Python goes on for long after the update: nothing is launched there."""
    story = KernelStory()
    story.settle()
    story.step(0, 1000 * US)
    story.operator("linear", Phase.FORWARD, 0, 100 * US, work=product(1_000_000))
    story.operator("sgd", Phase.UPDATE, 100 * US, 200 * US)
    return story


def elementwise() -> KernelStory:
    story = KernelStory()
    story.settle()
    story.step(0, 1000 * US)
    story.operator("relu", Phase.FORWARD, 0, 700 * US, work=relu(1000))
    story.operator("linear", Phase.FORWARD, 700 * US, 1000 * US, work=product(10_000_000))
    return story


@pytest.mark.parametrize(
    ("story", "bound", "share", "number"),
    [
        (starved, "data", 0.62, "62 %"),
        (tiny, "launching", 0.993, "99 %"),  # what follows the last is no gap
        (evaluating, "other", 0.9, "90 %"),
        (logging, "other", 0.8, "80 %"),
        (training_story, "compute", 0.6, "60 %"),
        (elementwise, "memory", 0.7, "70 %"),
    ],
)
def test_the_verdict_is_the_largest_share_of_the_step(story, bound, share, number):
    verdict = summary_of(story()).verdict

    assert verdict is not None
    assert (verdict.bound_by, verdict.share) == (bound, pytest.approx(share))
    assert verdict.sentence.startswith(f"bound by {bound}: {number} of the step")
    assert 1 <= len(verdict.advice) <= 3
    assert sum(verdict.shares.values()) == pytest.approx(1)


def test_without_peaks_products_are_computing_and_the_rest_by_its_operation():
    verdict = summary_of(training_story(), peaks=None).verdict

    assert verdict is not None
    assert {name: round(share, 6) for name, share in verdict.shares.items()} == {
        "data": 0.05, "launching": 0.0, "compute": 0.6, "memory": 0.1, "uncounted": 0.1, "other": 0.15,
    }  # fmt: skip


def test_a_small_product_below_the_ridge_is_bound_by_memory():
    story = KernelStory()
    story.settle()
    story.step(0, 100 * US)
    story.operator("gemv", Phase.FORWARD, 0, 100 * US, work=product(10_000, moved_bytes=20_000))

    verdict = summary_of(story).verdict

    assert verdict is not None
    assert verdict.bound_by == "memory"


def test_on_a_gpu_copies_that_nothing_hides_have_a_share_of_their_own():
    story = KernelStory(device="cuda:0")
    story.settle()
    story.step(0, 1000 * US)
    span = story.operator("linear", Phase.FORWARD, 0, 10 * US, work=product(10_000_000))
    story.kernel("to the device", 0, 600 * US, kind=KernelKind.COPY, stream=9)
    story.kernel("gemm", 500 * US, 1000 * US, span=span)

    verdict = summary_of(story).verdict

    assert verdict is not None
    assert verdict.bound_by == "copies"
    assert verdict.shares == pytest.approx({"data": 0, "launching": 0, "compute": 0.5, "memory": 0, "copies": 0.5})


def test_on_a_gpu_a_copy_within_it_is_bound_by_memory():
    story = KernelStory(device="cuda:0")
    story.settle()
    story.step(0, 1000 * US)
    span = story.operator("contiguous", Phase.FORWARD, 0, 10 * US, operation=Operation.COPY)
    story.kernel("direct_copy_kernel", 0, 600 * US, span=span)
    story.kernel("Memcpy DtoD (Device -> Device)", 600 * US, 1000 * US, span=span, kind=KernelKind.COPY)

    verdict = summary_of(story).verdict

    assert verdict is not None
    assert verdict.shares == pytest.approx({"data": 0, "launching": 0, "compute": 0, "memory": 1})


def test_looking_at_a_summary_twice_gives_the_same():
    recording = training_story().recording(peaks=PEAKS)

    first, second = summarize(recording), summarize(recording)

    assert replace(first, recording=recording) == replace(second, recording=recording)
