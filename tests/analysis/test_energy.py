"""Energy by the counter and by power over time, on windows whose joules are known by hand."""

import numpy as np
import pytest
from device_story import DeviceStory, steady

from tbdprof.analysis.device.energy import AVERAGED, INSTANT, counter_against_power, energy, grown, integrated
from tbdprof.analysis.device.samples import Samples
from tbdprof.analysis.summary import summarize
from tbdprof.facts import counters

S = 1_000_000_000


def samples(times: list[float], values: list[float]) -> Samples:
    ns = np.array([round(at * S) for at in times])
    return Samples(np.full(len(ns), -1), ns, np.array(values))


def test_joules_a_unit_are_the_counters_growth_within_the_window_over_its_units():
    found = energy(steady().recording(), None).value

    assert found is not None
    assert found.source == "counter"
    assert found.joules_per_unit == pytest.approx(5.0)  # 500 W for 10 s, 1000 images
    assert found.watts == pytest.approx(500)
    assert [(each.seconds, each.units, each.counter_joules) for each in found.windows] == [
        (10.0, 1000.0, pytest.approx(5000))
    ]
    assert found.interval is None  # of one window


def test_the_counter_is_set_beside_power_over_time():
    found = energy(steady(watts=480).recording(), None).value

    assert found is not None
    assert found.ratio == pytest.approx(500 / 480)
    assert found.windows[0].power_joules == pytest.approx(4800)
    assert found.joules_per_unit == pytest.approx(5.0)


def test_what_the_device_takes_before_and_after_the_steps_does_not_count():
    story = DeviceStory().window("clean", [4.0], start_s=1.0)
    times = np.arange(0, 61) / 10
    story.instants(counters.POWER, lambda s: 100.0 if 0.99 < s < 5.01 else 900.0, times)
    found = energy(story.recording(), None).value

    assert found is not None
    assert found.source == "power"
    assert found.windows[0].power_joules == pytest.approx(400)


def test_power_that_rises_evenly_is_integrated_exactly():
    rising = samples([0, 1, 2, 3], [0, 100, 200, 300])

    assert integrated(rising, (0, 3 * S)) == pytest.approx(450)
    assert integrated(rising, (S // 2, 5 * S // 2)) == pytest.approx(300)
    assert grown(rising, (S // 2, 5 * S // 2)) == pytest.approx(200)


def test_samples_that_end_before_the_window_give_nothing():
    assert integrated(samples([0, 1, 2], [1, 1, 1]), (0, 3 * S)) is None
    assert grown(samples([0, 1, 2], [1, 2, 3]), (-S, 2 * S)) is None
    assert grown(samples([1], [1]), (0, S)) is None
    assert integrated(samples([], []), (0, S)) is None


def test_a_counter_that_began_anew_gives_nothing():
    assert grown(samples([0, 1, 2], [5, 0, 1]), (0, 2 * S)) is None


def test_the_interval_is_that_of_the_clean_windows():
    story = DeviceStory()
    for number, watts in enumerate((400.0, 500.0, 600.0)):
        story.window("clean", [1.0] * 4, start_s=10.0 * number, units=100.0)
        times = 10 * number + np.arange(0, 41) / 10
        story.instants(counters.ENERGY, lambda s, w=watts: w * s, times)
    found = energy(story.recording(), None).value

    assert found is not None
    assert found.joules_per_unit == pytest.approx(5.0)
    assert found.interval is not None
    assert found.interval == (pytest.approx(4.0), pytest.approx(6.0))


def test_a_window_below_two_seconds_has_no_energy_and_the_reason():
    summary = summarize(steady(1.0).recording())

    assert summary.energy is not None
    assert summary.energy.windows == ()
    assert summary.energy.joules_per_unit is None
    assert "no clean window lasted 2 s" in summary.missing["energy.joules_per_unit"]
    assert summary.energy.power is not None  # an average needs no long window


def test_the_average_power_is_that_of_the_samples_and_gives_seed_002s_energy():
    story = DeviceStory().window("clean", [2.0, 2.0], units=10.0)
    story.instants(counters.POWER, lambda s: 300.0 if s < 3 else 700.0, np.arange(0, 41) / 10)
    found = energy(story.recording(), None).value

    assert found is not None
    assert found.power is not None
    assert found.power.mean_watts == pytest.approx((30 * 300 + 11 * 700) / 41)
    assert (found.power.least_watts, found.power.most_watts, found.power.kind) == (300, 700, INSTANT)
    assert found.power.period_s == pytest.approx(0.1)
    assert found.joules_per_unit_of_average_power == pytest.approx(found.power.mean_watts * 4 / 20)


def test_power_that_is_an_average_of_the_last_second_says_so():
    story = DeviceStory().window("clean", [3.0], start_s=5.0)
    story.instants(counters.POWER, 400.0, np.arange(50, 81) / 10, averaged_s=1.0)
    found = energy(story.recording(), None).value

    assert found is not None
    assert found.power is not None
    assert found.power.kind == AVERAGED


def test_a_long_steady_window_is_judged_without_its_ends():
    times = np.arange(0, 801) / 10
    story = DeviceStory().window("clean", [1.0] * 80)
    story.instants(counters.POWER, lambda s: 500.0 if 4 < s < 76 else 0.0, times)
    story.instants(counters.ENERGY, lambda s: 510.0 * s, times)
    recording = story.recording()
    found = counter_against_power(recording, recording.windows[0])

    assert found is not None
    assert (found.seconds, found.units) == (70.0, 700.0)
    assert found.ratio == pytest.approx(1.02)
    assert counter_against_power(recording, recording.windows[0], cut_s=11) is None


@pytest.mark.parametrize("counter", [440.0, 560.0])
def test_a_counter_that_is_off_by_more_than_a_twentieth_is_seen(counter: float):
    recording = steady(75.0, counter_watts=counter).recording()
    found = counter_against_power(recording, recording.windows[0])

    assert found is not None
    assert found.ratio is not None
    assert abs(found.ratio - 1) > 0.05


def test_without_the_counter_power_over_time_is_the_figure_and_the_reason_stands():
    story = DeviceStory().window("clean", [5.0], units=50.0)
    story.instants(counters.POWER, 200.0, np.arange(0, 51) / 10)
    summary = summarize(story.recording({"energy.counter": "the driver refuses: Not Supported"}))

    assert summary.energy is not None
    assert (summary.energy.source, summary.energy.joules_per_unit) == ("power", pytest.approx(20))
    assert summary.missing["energy.counter_over_power"] == "the driver refuses: Not Supported"
    assert summary.missing["counter_joules"] == "the driver refuses: Not Supported"


def test_without_either_there_is_no_energy_and_both_reasons():
    reasons = {"energy.counter": "one", "energy.power": "another"}
    summary = summarize(DeviceStory().window("clean", [5.0]).recording(reasons))

    assert summary.energy is None
    assert summary.missing["energy"] == "one; another"


def test_on_a_cpu_energy_is_quietly_not_reported():
    summary = summarize(DeviceStory().window("clean", [5.0]).recording(device="cpu"))

    assert summary.missing["energy"] == summary.missing["device"] == "reported on a GPU only"
    assert not {"energy", "device"} & summary.missing_now.keys()
