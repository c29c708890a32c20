"""What bounds a step, on short stories with hand-worked shares."""

import pytest
from kernel_stories import US, product, relu, summary_of, training_story
from make import KernelStory, timed_window
from plain_rows import table

from tbdprof.analysis.summary import summarize
from tbdprof.facts.counters import DATA_WAIT
from tbdprof.facts.records import KernelKind, Operation, Phase
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
    assert found.sentence == "bound by data: 60 % of a clean step waits for the next batch"
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
