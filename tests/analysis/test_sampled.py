"""Samples of counters shared out among kernels whose use is known: found again, and what spoils them is caught."""

from dataclasses import replace

import numpy as np
import pytest
from pm_story import BEGIN_NS, US, PmStory, three

from tbdprof.analysis.device import sampled
from tbdprof.analysis.device.attribution import (
    Intervals,
    calibrated,
    covered,
    shares,
    solve,
)
from tbdprof.analysis.device.sampled import measure, pipes
from tbdprof.analysis.summary import summarize
from tbdprof.facts.counters import PM_BUSY, PM_FP32, PM_TENSOR
from tbdprof.results.sampled import Offset, Sampled

BOUND = 0.01


def measured(story: PmStory, **seen: object) -> Sampled:
    found = measure(story.recording(story.seen(**seen))).value  # type: ignore[arg-type]
    assert found is not None
    return found


def error(story: PmStory, found: Sampled) -> float:
    """Return how far the uses of the FP32 pipe are from the truth, by time; kernels without one count as 0."""
    uses = {int(each.key[0].removeprefix("kernel_")): each.use.fp32 for each in found.kernels}
    spent = story.time_of()
    wrong = [abs((0 if use is None else use.value) - story.fp32[name]) * spent[name] for name, use in uses.items()]
    return float(sum(wrong) / sum(spent[name] for name in uses))


def by_name(found: Sampled) -> dict[str, sampled.SampledKernels]:
    return {each.key[0]: each for each in found.kernels}


@pytest.mark.parametrize("seed", [0, 3, 6])
@pytest.mark.parametrize("offset_us", [0, 50, -120])
def test_the_uses_of_short_kernels_are_found_again_whatever_the_clocks(seed: int, offset_us: int):
    story = PmStory.serial(seed)
    assert 18 <= np.median(story.end_ns - story.start_ns) / US <= 45  # a fraction of a sample of 100 µs

    found = measured(story, offset_ns=offset_us * US)

    assert error(story, found) < BOUND
    assert found.offset is not None
    assert found.offset.found_by == PM_BUSY
    assert found.offset.shift_ns == pytest.approx(-offset_us * US, abs=2 * US)
    assert found.violations == ()


def test_an_offset_that_is_not_looked_for_spoils_the_uses(monkeypatch: pytest.MonkeyPatch):
    """The judge of the test above: at 50 µs the same data, taken as if the clocks agreed, break the bound."""
    story = PmStory.serial(0)
    monkeypatch.setattr(sampled, "calibrated", lambda *_: Offset(0, None))

    found = measured(story, offset_ns=50 * US)

    assert error(story, found) > 5 * BOUND
    assert found.residuals[PM_FP32] > 10 * 0.005  # and the fit says so: the noise is 0.005


def test_kernels_without_a_gap_give_the_offset_by_what_they_use():
    story = PmStory.serial(3)
    long = story.end_ns - story.start_ns
    end = np.cumsum(long)
    edges = np.concatenate([[0], end[299::300]])
    story = replace(story, start_ns=end - long, end_ns=end, steps=np.stack([edges[:-1], edges[1:]], axis=1))

    found = measured(story, offset_ns=50 * US)

    assert found.offset == Offset(-50 * US, PM_FP32)
    assert error(story, found) < BOUND


def test_an_offset_beyond_reach_is_not_claimed():
    story = PmStory.serial(1, steps=10)

    assert measured(story, offset_ns=5000 * US).offset == Offset(0, None)


def test_kernels_side_by_side_on_two_streams_are_separated():
    story = PmStory.serial(4)
    second = np.arange(len(story.name)) % 2
    early = np.minimum((story.end_ns - story.start_ns) // 2, 40 * US) * second
    start, end = story.start_ns - early, story.end_ns - early
    order = np.argsort(start, kind="stable")
    story = replace(story, name=story.name[order], start_ns=start[order], end_ns=end[order], stream=7 + second[order])
    assert (story.start_ns[1:] < story.end_ns[:-1]).mean() > 0.3

    assert error(story, measured(story)) < BOUND


def test_errors_are_those_of_the_fit():
    """Of 40 uses some two are further from the truth than two standard errors."""
    story = PmStory.serial(2)
    found = measured(story)
    off = []
    for each in found.kernels:
        assert each.use.fp32 is not None
        truth = story.fp32[int(each.key[0].removeprefix("kernel_"))]
        off.append(abs(each.use.fp32.value - truth) / each.use.fp32.error)

    assert np.mean(np.array(off) < 2) > 0.85
    assert max(off) < 4


def test_uses_samples_and_means_of_three_kernels():
    found = measured(three(), noise=0.0)
    long, idle, short = (by_name(found)[f"kernel_{number}"] for number in range(3))

    assert long.use.fp32 is not None
    assert long.use.fp32.value == pytest.approx(0.5, abs=1e-6)
    assert long.use.fp32_low is not None
    assert long.use.fp32_low.value == pytest.approx(0.25, abs=1e-6)  # half of what the half for FP32 did
    assert long.use.tensor is not None
    assert long.use.tensor.value == pytest.approx(0.25, abs=1e-6)
    assert idle.use.fp32 is not None
    assert idle.use.fp32.value == pytest.approx(0, abs=1e-6)
    assert short.use.fp32 is not None
    assert short.use.fp32.value == pytest.approx(0.2, abs=1e-6)
    assert (long.calls, long.seconds) == (pytest.approx(1), pytest.approx(260e-6))
    assert long.share == pytest.approx(260 / 520)
    assert long.covered == pytest.approx(1, abs=0.02)
    assert 39 * 2 <= long.samples <= 39 * 4
    # 260 µs at 0.5 and 90 µs at 0.2 in 520 µs of kernels, of a step of 731 µs
    assert found.while_busy[PM_FP32] == pytest.approx((260 * 0.5 + 90 * 0.2) / 520, rel=0.01)
    assert found.elapsed[PM_BUSY] == pytest.approx(520 / 731, rel=0.01)
    assert found.busy == pytest.approx(520 / 731, rel=0.01)
    assert (found.lost, found.residual_ns, found.interval_ns) == (3, 120.0, 100 * US)
    assert pipes(found)[long.key].fp32 == long.use.fp32.value


def test_by_name_and_phase_each_geometry_counts_by_its_time():
    """kernel_0 at two geometries: 260 µs at 0.5 and 90 µs at 0.2 are 350 µs at 0.423."""
    story = three()
    recording = story.recording(story.seen(noise=0.0))
    rows = recording.windows[0].tables["kernel"]
    renamed = story.name == 2
    rows["name"][renamed] = rows["name"][0]
    rows["grid"][renamed] = recording.strings.add("[9, 1, 1]")

    found = measure(recording).value

    assert found is not None
    assert len(found.kernels) == 3
    use = found.by_name["kernel_0", "outside"]
    assert use.use.fp32 is not None
    assert use.use.fp32.value == pytest.approx((260 * 0.5 + 90 * 0.2) / 350, abs=1e-6)
    assert use.covered == 1.0


def test_a_kernel_that_comes_once_says_that_it_is_too_rare():
    story = three()
    story = replace(
        story,
        name=np.concatenate([story.name, [3]]),
        start_ns=np.concatenate([story.start_ns, [story.steps[20, 0] + 600 * US]]),
        end_ns=np.concatenate([story.end_ns, [story.steps[20, 0] + 620 * US]]),
        fp32=np.append(story.fp32, 0.9),
        tensor=np.append(story.tensor, 0.1),
    )
    rare = by_name(measured(story))["kernel_3"]

    assert rare.use == sampled.Use()
    assert rare.reason is not None
    assert rare.reason.startswith("too short or too rare: it has a part in ")


def test_short_kernels_under_noise_say_how_uncertain_they_are():
    story = three()
    kept = np.isin(story.name, [0, 1]) | (np.arange(len(story.name)) % 9 == 2)
    story = replace(story, name=story.name[kept], start_ns=story.start_ns[kept], end_ns=story.end_ns[kept])
    short = by_name(measured(story, noise=0.5))["kernel_2"]

    assert short.use.fp32 is None
    assert short.reason is not None
    assert short.reason.startswith("too short or too rare: its use is uncertain by ")


def test_kernels_always_side_by_side_cannot_be_separated():
    story = three()
    twin = story.name == 0
    story = replace(
        story,
        name=np.concatenate([story.name, np.full(twin.sum(), 3)]),
        start_ns=np.concatenate([story.start_ns, story.start_ns[twin]]),
        end_ns=np.concatenate([story.end_ns, story.end_ns[twin]]),
        fp32=np.append(story.fp32, 0.1),
        tensor=np.append(story.tensor, 0.1),
    )
    found = by_name(measured(story))

    assert found["kernel_0"].reason == "always runs with the same other kernels: samples cannot separate them"
    assert found["kernel_3"].reason == found["kernel_0"].reason
    assert found["kernel_1"].reason is None


def test_a_use_above_all_there_is_is_an_error():
    found = measured(three(fp32=1.2), noise=0.0)

    assert found.violations == ("fp32 of kernel_0 is sampled at 120.0 %: more than there is",)


def test_noise_above_all_there_is_is_none():
    assert measured(three(fp32=0.999), noise=0.05).violations == ()


def test_samples_without_kernels_say_that_one_may_silence_the_other():
    story = three()
    found = measure(story.recording(story.seen(), kernels=False)).value

    assert found is not None
    assert found.reason is not None
    assert "no kernel was recorded beside them" in found.reason
    assert found.kernels == ()
    assert found.while_busy[PM_FP32] == pytest.approx((260 * 0.5 + 90 * 0.2) / 520, rel=0.02)  # by the device's word


def test_without_scipy_the_whole_windows_means_are_there_and_a_reason(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sampled, "find_spec", lambda name: None)
    story = three()

    found = measure(story.recording(story.seen())).value

    assert found is not None
    assert found.elapsed
    assert (found.kernels, found.reason) == ((), sampled.NO_SCIPY)


def test_only_samples_within_the_counted_steps_count():
    story = three()
    start, _ = story.seen(noise=0.0)
    found = measured(story, noise=0.0)

    inside = (start >= story.steps[1, 0]) & (start + 100 * US <= story.steps[-1, 1])
    assert found.samples == int(inside.sum())


def test_a_counter_without_a_value_in_some_samples_is_fitted_to_the_others():
    story = three()
    recording = story.recording(story.seen(noise=0.0))
    rows = recording.windows[0].tables["sample"]
    tensor = rows["counter"] == recording.strings.add(PM_TENSOR)
    gone = tensor & (rows["start_ns"] % (300 * US) == BEGIN_NS % (300 * US))
    recording.windows[0].tables["sample"] = rows[~gone]

    found = measure(recording).value

    assert found is not None
    assert gone.any()
    use = by_name(found)["kernel_0"].use
    assert use.tensor is not None
    assert use.tensor.value == pytest.approx(0.25, abs=1e-6)


def test_a_run_without_samples_has_no_sampled_level():
    story = three()
    recording = story.recording(story.seen())
    recording.windows[0].tables["sample"] = recording.windows[0].tables["sample"][:0]

    assert measure(recording).value is None
    assert summarize(recording).missing["sampled"] == "no sample lies within the counted steps of the sampled window"


def test_more_groups_than_can_be_solved_for_leave_the_rest_in_one(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sampled, "MOST_GROUPS", 2)
    found = measured(three(), noise=0.0)

    assert [each.key[0] for each in found.kernels] == ["kernel_0", "kernel_1"]
    assert found.kernels[0].use.fp32 is not None
    assert found.kernels[0].use.fp32.value == pytest.approx(0.5, abs=1e-6)
    assert ("kernel_2", "outside") not in found.by_name


def test_what_is_covered_and_what_kernels_share_of_a_sample():
    """Samples [0, 100) and [100, 200); kernels [50, 120) of group 0 and [110, 130) of group 1 beside it."""
    samples = Intervals(np.array([0, 100]), np.array([100, 200]))
    kernels = Intervals(np.array([50, 110]), np.array([120, 130]))

    assert covered(samples, kernels).tolist() == pytest.approx([0.5, 0.3])
    assert shares(samples, kernels, np.array([0, 1]), 2).toarray() == pytest.approx(
        np.array([[0.5, 0, 0.5], [0.2, 0.2, 0.7]])
    )


def test_a_kernel_whose_use_changes_leaves_a_residual_where_it_ran():
    """Two samples of group 0 at 0.4 and 0.6, two of group 1 at 0.2: the first is 0.5, 0.1 off."""
    samples = Intervals(np.arange(0, 400, 100), np.arange(100, 500, 100))
    matrix = shares(samples, samples, np.array([0, 0, 1, 1]), 2)
    found = solve(matrix, np.array([0.4, 0.6, 0.2, 0.2]))

    assert found.use.tolist() == pytest.approx([0.5, 0.2, 0])
    assert found.residuals.tolist() == pytest.approx([0.1, 0, 0])
    assert found.residual == pytest.approx(np.sqrt(0.02 / 4))


def test_a_use_is_never_below_nothing():
    samples = Intervals(np.arange(0, 1000, 100), np.arange(100, 1100, 100))
    kernels = Intervals(np.array([0, 500]), np.array([500, 1000]))
    matrix = shares(samples, kernels, np.array([0, 1]), 2)

    assert solve(matrix, np.array([-0.1] * 5 + [0.5] * 5)).use.tolist() == pytest.approx([0, 0.5, 0])


def test_no_course_gives_no_offset():
    samples = Intervals(np.arange(0, 1000, 100), np.arange(100, 1100, 100))
    kernels = Intervals(np.array([0]), np.array([1000]))

    assert calibrated(samples, kernels, np.array([0]), 1, [(PM_BUSY, np.ones(10))], PM_BUSY) == Offset(0, None)
