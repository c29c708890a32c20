"""What the page draws: nothing is lost of any sum, and the peak is kept however much is left out."""

import numpy as np
import pytest
from device_story import steady
from kernel_stories import US, training_story
from make import KernelStory, timed_window
from memory_story import measured, training

from tbdprof.analysis.device.over_time import over_time as device_over_time
from tbdprof.analysis.memory import over_time as memory_over_time
from tbdprof.analysis.pictures import pictures
from tbdprof.analysis.time import one_step as steps
from tbdprof.analysis.time.course import course
from tbdprof.facts import counters
from tbdprof.facts.recording import Recording
from tbdprof.facts.records import Phase, Strings
from tbdprof.results.pictures import MemoryOverTime


def drawn(recording: Recording) -> MemoryOverTime:
    found = memory_over_time.over_time(recording).value
    assert found is not None
    return found


def listed_at(found: MemoryOverTime, instant: int) -> int:
    live = (found.listed.first <= instant) & (instant <= found.listed.last)
    held = sum(found.listed.holdings[place].size_bytes for place in np.flatnonzero(live).tolist())
    others = [*found.unlisted_bytes.values(), *found.unreported_bytes.values(), found.rounding]
    return held + sum(int(each[instant]) for each in others)


@pytest.mark.parametrize("listed", [0, 2, 12_000])
@pytest.mark.parametrize("stretches", [2, 700])
def test_what_is_live_at_each_instant_adds_up_to_the_curve(
    monkeypatch: pytest.MonkeyPatch, listed: int, stretches: int
):
    monkeypatch.setattr(memory_over_time, "LISTED", listed)
    monkeypatch.setattr(memory_over_time, "STRETCHES", stretches)
    story = training(4)
    story.unseen(77)  # of the framework's total, without a block

    found = drawn(story.recording())

    assert [listed_at(found, instant) for instant in range(len(found.time_ns))] == found.total.tolist()
    assert len(found.listed.holdings) <= listed


def test_the_peak_is_that_of_the_report_however_few_instants_are_kept(monkeypatch: pytest.MonkeyPatch):
    recording = training(4).recording()
    whole = drawn(recording)
    monkeypatch.setattr(memory_over_time, "STRETCHES", 1)

    few = drawn(recording)

    report = measured(recording)
    assert len(few.time_ns) < len(whole.time_ns) == whole.events
    for found in (whole, few):
        assert found.total[found.peak] == found.total.max() == report.peak_bytes
        at_peak = {role: int(values[found.peak]) for role, values in found.roles.items() if values[found.peak]}
        assert at_peak == {role: size for role, size in report.roles_at_peak.items() if size}


def test_the_warm_up_step_is_not_drawn():
    recording = training(3).recording()

    found = drawn(recording)

    assert [band.name for band in found.steps] == ["step 1", "step 2"]
    assert found.events < measured(recording).events


@pytest.mark.parametrize("most", [2, 100])
def test_the_pieces_of_a_step_add_up_to_it_and_to_the_idle_time(monkeypatch: pytest.MonkeyPatch, most: int):
    monkeypatch.setattr(steps, "MOST_PIECES", most)
    found = steps.one_step(training_story().recording()).value

    assert found is not None
    assert sum(found.sums.values()) == 1000 * US
    assert len(found.pieces) + found.omitted == 4
    if found.omitted:
        assert [piece.start_ns for piece in found.slices[1:]] == [piece.end_ns for piece in found.slices[:-1]]
        busy = sum(piece.end_ns - piece.start_ns for piece in found.slices if piece.state == steps.BUSY)
        assert busy == pytest.approx(800 * US, rel=0.01)
        return
    assert found.slices == ()
    assert sum(piece.end_ns - piece.start_ns for piece in found.pieces) == found.end_ns - found.start_ns == 1000 * US
    busy = sum(piece.end_ns - piece.start_ns for piece in found.pieces if piece.state == steps.BUSY)
    assert busy == 800 * US
    assert {piece.state for piece in found.pieces} == {steps.BUSY, steps.DATA_WAIT, steps.LAUNCHING}


def test_a_lane_has_the_outermost_operators_with_their_layers():
    story = KernelStory()
    story.settle()
    story.step(0, 1000)
    layer = story.layer("fc", 0, 500)
    outer = story.operator("linear", Phase.FORWARD, 100, 400, parent=layer)
    story.operator("addmm", Phase.FORWARD, 200, 300, parent=outer)
    story.operator("relu", Phase.FORWARD, 600, 700)

    found = steps.one_step(story.recording()).value

    assert found is not None
    (lane,) = found.lanes
    assert [(bar.name, bar.layer, bar.start_ns, bar.end_ns) for bar in lane.bars] == [
        ("linear", "fc", 100, 400),
        ("relu", None, 600, 700),
    ]


def test_short_operators_are_drawn_as_one_that_says_how_many(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(steps, "MOST_BARS", 1)
    story = KernelStory()
    story.settle()
    story.step(0, 1000)
    for start in (0, 10, 20):
        story.operator("short", Phase.FORWARD, start, start + 10)
    story.operator("long", Phase.FORWARD, 40, 900)
    story.operator("short", Phase.FORWARD, 910, 920)

    found = steps.one_step(story.recording()).value

    assert found is not None
    (lane,) = found.lanes
    assert [(bar.count, bar.busy_ns, bar.start_ns, bar.end_ns) for bar in lane.bars] == [
        (3, 30, 0, 30),
        (1, 0, 40, 900),
        (1, 0, 910, 920),
    ]
    assert lane.total == sum(bar.count for bar in lane.bars)


def test_the_streams_of_a_device_are_lanes_of_their_own():
    story = KernelStory(device="cuda:0")
    story.settle()
    story.step(0, 1000)
    for stream in (7, 9):
        story.kernel("gemm", 100 * stream, 100 * stream + 50, stream=stream, launch=10)

    found = steps.one_step(story.recording()).value

    assert found is not None
    assert [lane.name for lane in found.lanes] == ["cuda:0 stream 7", "cuda:0 stream 9"]


def test_a_block_that_took_much_longer_is_an_outlier_and_one_that_did_not_is_none():
    blocks = [1.0, 1.001, 0.999, 1.0, 1.02, 3.0]
    recording = Recording(training_story().recording().run, [timed_window(0, "clean", blocks)], Strings())

    found = course(recording).value

    assert found is not None
    assert found.is_outlier.tolist() == [False] * 5 + [True]
    assert found.seconds.tolist() == blocks


def test_where_all_last_alike_those_drawn_are_spread_over_the_step(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(steps, "MOST_BARS", 10)
    story = KernelStory()
    story.settle()
    story.step(0, 1000)
    for start in range(0, 1000, 10):
        story.operator("alike", Phase.FORWARD, start, start + 5)

    found = steps.one_step(story.recording()).value

    assert found is not None
    alone = [bar.start_ns for bar in found.lanes[0].bars if bar.count == 1]
    assert {start // 100 for start in alone} == set(range(10))
    assert found.lanes[0].total == sum(bar.count for bar in found.lanes[0].bars) == 100


def test_of_many_samples_the_least_and_the_most_are_kept():
    story = steady(200.0, watts=500.0)
    window = story.windows[0]
    rows = window.tables["sample"]
    power = rows["counter"] == story.strings.find(counters.POWER)
    rows["value"][np.flatnonzero(power)[777]] = 700.0

    (found,) = [each for each in device_over_time(story.recording()) if each.counter == counters.POWER]

    assert found.samples == power.sum()
    assert len(found.values) < found.samples
    assert found.values.max() == 700.0


def test_each_picture_that_is_missing_has_its_reason():
    recording = Recording(training_story().recording().run, [], Strings())

    found = pictures(recording)

    assert found.memory is found.step is found.step_times is None
    assert found.missing.keys() == {"memory", "step", "step_times", "device"}
