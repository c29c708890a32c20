"""What bounds a step, on short stories with hand-worked shares."""

import pytest
from kernel_stories import PEAKS, US, product, relu, summary_of, training_story
from make import KernelStory, timed_window
from plain_rows import table

from tbdprof.analysis.summary import summarize
from tbdprof.facts.counters import DATA_WAIT, MACHINE_CPU, PROCESS_CPU
from tbdprof.facts.records import KernelKind, Operation, Phase
from tbdprof.report.json_report import document
from tbdprof.results.reasons import SEVERAL
from tbdprof.results.time import Verdict


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
    """The framework makes the batch, or a teacher runs: no batch is waited for, but the chart has it under data."""
    story = KernelStory()
    story.settle()
    story.step(0, 1000 * US)
    story.operator("teacher", Phase.OUTSIDE, 0, 900 * US, work=product(10_000_000))
    story.operator("linear", Phase.FORWARD, 900 * US, 1000 * US, work=product(1_000_000))
    return story


def functional() -> KernelStory:
    """No model is called: its forward operators are outside of all phases."""
    story = KernelStory()
    story.settle()
    story.step(0, 1000 * US)
    story.operator("relu", Phase.OUTSIDE, 0, 500 * US, work=relu(1000))
    story.operator("relu_backward", Phase.BACKWARD, 500 * US, 900 * US, work=relu(1000))
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
    ("story", "bound", "share", "sentence"),
    [
        (starved, "data", 0.62, "data: 62 % of the step passes before the forward pass, mostly while no operator runs"),
        (tiny, "launching", 0.993, "launching: 99 % of the step passes between operators"),  # no gap after the last
        (
            evaluating,
            "data",
            0.9,
            "data: 90 % of the step passes before the forward pass, mostly in operators that run",
        ),
        (functional, "memory", 0.9, "memory: 90 % of the step is in operators that reading and writing memory limits"),
        (logging, "other", 0.8, "other work: 80 % of the step is outside of loading, forward, backward and update"),
        (
            *(training_story, "compute", 0.6),
            "compute: 60 % [60, 60] of the step is in operators that arithmetic limits, mostly in the backward pass",
        ),
        (elementwise, "memory", 0.7, "memory: 70 % of the step is in operators that reading and writing memory limits"),
    ],
)
def test_the_verdict_is_the_largest_share_of_the_step(story, bound, share, sentence):
    verdict = summary_of(story()).verdict

    assert verdict is not None
    assert (verdict.bound_by, verdict.share) == (bound, pytest.approx(share))
    assert verdict.sentence.startswith(f"bound by {sentence}")
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
    story.kernel("gemm", 600 * US, 1000 * US, span=span)

    verdict = summary_of(story).verdict

    assert verdict is not None
    assert verdict.bound_by == "copies"
    assert verdict.shares == pytest.approx({"data": 0, "launching": 0, "compute": 0.4, "memory": 0, "copies": 0.6})


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


def waiting(seconds: float, story: KernelStory, **run_changes: object) -> Verdict:
    """Return the verdict on a story whose clean steps, 2 of 1 ms each, wait for batches so long together."""
    recording = story.recording(**{"precision": "fp32", **run_changes})
    window = timed_window(1, "clean", [0.001, 0.001], units=4)
    counter, device = story.strings.add(DATA_WAIT), story.strings.add("cpu")
    window.tables["sample"] = table(
        "sample", [(counter, device, 0, 5.0, -1), (counter, device, 2_000_000, 5.0 + seconds, -1)]
    )
    recording.windows.append(window)
    found = summarize(recording).verdict
    assert found is not None
    return found


def test_a_clean_step_that_waits_longer_for_its_batch_makes_the_verdict():
    """The kernels window has the 5 % before forward alone: its steps are slower, and batches are made ahead."""
    found = waiting(0.0012, training_story())

    assert (found.bound_by, found.share) == ("data", pytest.approx(0.6))
    assert found.sentence == "bound by data: 60 % [60, 60] of a clean step is spent waiting for the next batch"
    # Without a peak products are computing: 0.6 of 0.95 that are not data, of which 0.4 are left.
    assert found.shares["compute"] == pytest.approx(0.6 / 0.95 * 0.4)
    assert sum(found.shares.values()) == pytest.approx(1)


def test_waiting_that_is_not_the_largest_share_is_reported_among_the_others():
    found = waiting(0.0004, training_story())

    assert found.bound_by == "compute"
    assert found.shares["data"] == pytest.approx(0.2)


def test_a_clean_step_that_waits_less_than_the_watched_one_changes_nothing():
    assert waiting(0.0, training_story()) == waiting(0.00005, training_story())
    assert waiting(0.0, training_story()).shares["data"] == pytest.approx(0.05)


def on_a_gpu(busy_us: int) -> KernelStory:
    story = KernelStory(device="cuda:0")
    story.settle()
    story.step(0, 1000 * US)
    span = story.operator("linear", Phase.FORWARD, 0, 10 * US, work=product(10_000_000))
    story.kernel("gemm", 0, busy_us * US, span=span)
    return story


@pytest.mark.parametrize(("busy_us", "bound", "data"), [(950, "compute", 0.05), (300, "data", 0.6)])
def test_a_gpu_that_works_while_its_host_waits_is_not_starved(busy_us: int, bound: str, data: float):
    found = waiting(0.0012, on_a_gpu(busy_us))

    assert found.bound_by == bound
    assert found.shares["data"] == pytest.approx(data)


def test_neither_is_a_framework_that_runs_ahead_on_a_cpu():
    found = waiting(0.0012, training_story(), runs_ahead=True)  # 80 % of a clean step in operators

    assert (found.bound_by, found.shares["data"]) == ("compute", pytest.approx(0.2))


def steps_of(*microseconds: tuple[int, int, int]) -> KernelStory:
    """Return steps of so long before forward, in products, and in element-wise operators."""
    story, now = KernelStory(), 0
    story.settle()
    for waits, products, elements in microseconds:
        forward, update = now + waits * US, now + (waits + products) * US
        end = update + elements * US
        story.step(now, end)
        story.operator("linear", Phase.FORWARD, forward, update, work=product(100_000_000))
        story.operator("relu", Phase.UPDATE, update, end, work=relu(1000))
        now = end
    return story


def test_one_slow_step_of_three_does_not_decide():
    found = summary_of(steps_of((100, 700, 200), (9000, 700, 200), (100, 700, 200))).verdict

    assert found is not None
    assert found.shares["data"] > 0.7
    assert (found.bound_by, found.candidates) == (None, ("data", "compute", "memory"))
    assert found.sentence == (
        "cannot tell which takes most of the step, data (77 %), compute (18 %) or memory (5 %): "
        "the steps that were watched differ too much"
    )
    assert found.advice[0].startswith("measure again")


def test_a_lead_that_all_steps_have_is_told_with_its_interval():
    summary = summary_of(steps_of((200, 600, 200), (200, 640, 200), (200, 560, 200)))
    found = summary.verdict

    assert found is not None
    assert found.bound_by == "compute"
    # By hand: 0.6 of 1000 µs each; the residuals are 0 and ±16 µs, Student's t of two degrees of freedom is 4.303.
    half = 4.303 * 0.016 / 3**0.5
    assert found.intervals["compute"] == pytest.approx((0.6 - half, 0.6 + half))
    assert "60 % [56, 64] of the step" in found.sentence
    assert "verdict.bound_by" not in summary.missing


def test_two_that_change_places_from_step_to_step_are_both_named():
    summary = summary_of(steps_of((100, 500, 400), (100, 420, 480), (100, 460, 440)))
    found = summary.verdict

    assert found is not None
    assert (found.bound_by, found.candidates) == (None, ("compute", "memory"))
    assert summary.missing["verdict.bound_by"] == SEVERAL
    assert document(summary)["verdict"]["candidates"] == ["compute", "memory"]


def test_of_a_single_step_a_small_lead_is_not_told():
    found = summary_of(steps_of((100, 480, 420))).verdict

    assert found is not None
    assert found.bound_by is None
    assert found.sentence.endswith("compute (48 %) or memory (42 %): only one step was watched")


def loaded(others: float) -> Verdict:
    """Return the verdict on steps of 55 % products and 40 % relus, where other processes took so much of 2 cores."""
    recording = steps_of(*[(50, 550, 400)] * 3).recording(peaks=PEAKS, precision="fp32", affinity_cores=2.0)
    window = timed_window(1, "clean", [0.5, 0.5])
    rows = []
    for name, spent in ((PROCESS_CPU, 1.0), (MACHINE_CPU, 1.0 + 2 * others)):
        counter = recording.strings.add(name)
        rows += [(counter, -1, 0, 0.0, -1), (counter, -1, 1_000_000_000, spent, -1)]
    window.tables["sample"] = table("sample", rows)
    recording.windows.append(window)
    found = summarize(recording)
    assert found.cpu is not None
    assert found.cpu.disturbed == (others > 0.1)
    assert found.verdict is not None
    return found.verdict


def test_a_lead_that_other_processes_may_have_made_is_not_told():
    assert loaded(0.05).bound_by == "compute"
    assert loaded(0.2).bound_by == "compute"
    found = loaded(0.4)
    assert (found.bound_by, found.candidates) == (None, ("compute", "memory"))
    assert found.sentence.endswith("compute (55 %) or memory (40 %): other processes took 40 % of the cores")


def test_a_short_operator_that_was_interrupted_is_short_all_the_same():
    story = KernelStory()
    story.settle()
    for begun in (0, 1000 * US, 2000 * US):
        story.step(begun, begun + 1000 * US)
        # Of a hundred operators of 5 µs the second step's last is interrupted for the time of the products elsewhere.
        for place in range(100):
            at = begun + 5 * US * place
            interrupted = begun == 1000 * US and place == 99
            story.operator("add", Phase.FORWARD, at, at + (5 + 395 * interrupted) * US)
        story.operator("linear", Phase.BACKWARD, begun + 900 * US, begun + 1000 * US, work=product(10_000_000))

    found = summary_of(story).verdict

    assert found is not None
    assert "uncounted" not in found.shares
    assert found.shares["launching"] == pytest.approx(0.9)


def test_bookkeeping_of_any_length_is_launching():
    story = KernelStory()
    story.settle()
    story.step(0, 1000 * US)
    story.operator("empty", Phase.FORWARD, 0, 800 * US, operation=Operation.BOOKKEEPING)
    story.operator("linear", Phase.FORWARD, 800 * US, 1000 * US, work=product(10_000_000))

    found = summary_of(story).verdict

    assert found is not None
    assert found.shares == pytest.approx({"data": 0, "launching": 0.8, "compute": 0.2, "memory": 0})


@pytest.mark.parametrize("story", [starved, evaluating, training_story, logging, elementwise])
def test_the_verdict_agrees_with_the_chart_below_it(story):
    summary = summary_of(story())

    assert summary.verdict is not None
    assert summary.step_time is not None
    chart = {phase.name: phase.share for phase in summary.step_time.phases}
    assert summary.verdict.shares["data"] == pytest.approx(chart["data"])
    assert summary.verdict.shares.get("other", 0) == pytest.approx(chart["other"])
