"""The driver's account by window, and its busy beside the kernels' own times, with hand-worked numbers."""

from dataclasses import replace

import numpy as np
import pytest
from device_story import PEAKS, DeviceStory
from make import KernelStory

from tbdprof.analysis.device.driver import device
from tbdprof.analysis.device.samples import mean
from tbdprof.analysis.summary import summarize
from tbdprof.analysis.time.utilization import at_clock
from tbdprof.facts import counters
from tbdprof.facts.records import Operation, Phase
from tbdprof.facts.work import Work
from tbdprof.results.device import Device
from tbdprof.results.kernels import Flop, Utilization

MS = 1_000_000


def device_of(story: DeviceStory, kernels_busy: float | None = None) -> Device:
    found = device(story.recording(), kernels_busy).value
    assert found is not None
    return found


def test_a_figure_over_time_is_weighted_by_the_time_it_shares_with_the_window():
    story = DeviceStory().window("clean", [1.0], start_s=1.0)
    story.stretches(counters.GPM_SM_ACTIVE, lambda s: {1.5: 0.2, 1.9: 0.5, 3.0: 0.9}[s], [0.0, 1.5, 1.9, 3.0])

    # 0.5 s of the first, 0.4 s of the second, 0.1 s of the third
    assert mean(story.recording(), "clean", counters.GPM_SM_ACTIVE) == pytest.approx(0.5 * 0.2 + 0.4 * 0.5 + 0.1 * 0.9)


def test_several_windows_weigh_by_their_samples_time():
    story = DeviceStory().window("clean", [1.0]).stretches(counters.DRIVER_BUSY, 0.2, [0.0, 1.0])
    story.window("clean", [3.0], start_s=5.0).stretches(counters.DRIVER_BUSY, 0.6, [5.0, 6.5, 8.0])

    assert mean(story.recording(), "clean", counters.DRIVER_BUSY) == pytest.approx(0.5)
    assert device_of(story).driver_period_s == pytest.approx(1.5)


def test_the_block_that_settles_does_not_count():
    story = DeviceStory().window("kernels", [1.0, 2.0])
    story.stretches(counters.DRIVER_BUSY, lambda s: s / 4, [0.0, 1.0, 2.0, 3.0])

    assert device_of(story).driver_busy == {"clean": None, "kernels": pytest.approx((0.5 + 0.75) / 2)}


def test_figures_of_another_device_are_not_the_runs():
    story = DeviceStory().window("clean", [1.0]).stretches(counters.DRIVER_BUSY, 0.5, [0.0, 1.0])

    assert device(story.recording(device="cuda:1"), None).value is None


def test_the_clock_has_a_mean_a_range_and_a_share_of_the_highest_in_every_window():
    story = DeviceStory()
    for number, name in enumerate(("warmup", "clean", "memory", "sampled")):
        story.window(name, [1.0, 1.0], start_s=2.0 * number)
        story.instants(counters.SM_CLOCK, lambda s: 1e9 + 1e8 * s, 2 * number + np.array([0.1, 1.1, 1.9]))
    story.instants(counters.SM_CLOCK_MAX, 1.98e9, np.array([7.0]))
    found = device_of(story)

    assert set(found.sm_clock) == {"clean", "memory", "sampled"}
    clean = found.sm_clock["clean"]
    assert clean is not None
    assert (clean.mean_hz, clean.least_hz, clean.most_hz) == pytest.approx((1.3033e9, 1.21e9, 1.39e9), rel=1e-4)
    assert found.of_most("clean") == pytest.approx(1.30333 / 1.98, rel=1e-4)
    assert found.sm_clock["sampled"] is not None
    assert found.sm_clock["sampled"].least_hz == pytest.approx(1.71e9)  # the first block settles


def test_where_the_driver_does_not_report_the_highest_clock_it_is_that_of_the_peaks():
    story = DeviceStory().window("clean", [1.0]).instants(counters.SM_CLOCK, 1.5e9, np.array([0.5]))

    assert device_of(story).of_most("clean") == pytest.approx(0.75)


def test_throttling_is_reported_in_words_and_a_clock_somebody_set_or_nothing_to_do_is_none():
    story = DeviceStory().window("clean", [1.0])
    bits = {0.1: 0x4, 0.2: 0x4 | 0x20, 0.3: 0x1, 0.4: 0x2, 0.5: 0x0}
    story.instants(counters.THROTTLE, lambda s: float(bits[round(s, 1)]), np.array(list(bits)))
    found = device_of(story).reasons["clean"]

    assert found is not None
    assert found.throttled == pytest.approx(0.4)
    assert found.by_reason == {
        "power cap": pytest.approx(0.4), "temperature (software)": pytest.approx(0.2), "idle": pytest.approx(0.2),
        "applications' clocks setting": pytest.approx(0.2),
    }  # fmt: skip


def test_a_reason_nvml_has_no_word_for_is_reported_by_its_bit():
    story = DeviceStory().window("clean", [1.0]).instants(counters.THROTTLE, float(0x8000), np.array([0.5]))
    found = device_of(story).reasons["clean"]

    assert found is not None
    assert found.by_reason == {"reason 0x8000": 1.0}
    assert found.throttled == 1.0


def gpm(story: DeviceStory, seconds: float = 2.0, **values: float) -> DeviceStory:
    for name, value in values.items():
        story.stretches(getattr(counters, name), value, [0.0, 1.0, seconds])
    return story


def test_gpms_fp32_is_over_elapsed_time_and_is_divided_by_its_own_busy():
    story = gpm(DeviceStory().window("clean", [2.0]), GPM_BUSY=0.8, GPM_FP32=0.4, GPM_TENSOR=0.1)
    found = device_of(story).gpm["clean"]

    assert found is not None
    assert found.fp32_while_busy == pytest.approx(0.5)
    assert (found.sm_active, found.dram) == (None, None)


def test_without_a_busy_figure_there_is_no_figure_while_busy():
    found = device_of(gpm(DeviceStory().window("clean", [2.0]), GPM_FP32=0.4)).gpm["clean"]

    assert found is not None
    assert found.fp32_while_busy is None


@pytest.mark.parametrize(("driver", "apart"), [(0.91, False), (0.925, False), (0.94, True), (0.86, True)])
def test_busy_by_the_kernels_times_is_beside_the_drivers_and_gpms_and_more_than_3_points_are_apart(
    driver: float, apart: bool
):
    story = gpm(DeviceStory().window("kernels", [1.0, 10.0]), 11.0, GPM_BUSY=0.9, DRIVER_BUSY=driver)
    busy = device_of(story, 0.9).busy

    assert busy is not None
    assert busy.seconds == pytest.approx(10)
    assert busy.driver_difference == pytest.approx(driver - 0.9)
    assert busy.gpm_difference == pytest.approx(0)
    assert busy.is_apart is apart


def test_kernels_windows_that_are_short_beside_the_drivers_samples_are_no_reason_for_doubt():
    busy = device_of(gpm(DeviceStory().window("kernels", [1.0, 1.0]), DRIVER_BUSY=0.2), 0.9).busy

    assert busy is not None
    assert (busy.driver_difference, busy.is_comparable) == (pytest.approx(-0.7), False)
    assert not busy.is_apart


def test_temperature_is_the_highest_the_edges_of_the_window_with_it():
    story = DeviceStory().window("kernels", [0.1, 0.1])
    story.instants(counters.TEMPERATURE, lambda s: 50 + 10 * s, np.array([0.0, 0.5]))

    assert device_of(story).most_celsius["kernels"] == 55


def flop(value: float) -> Utilization:
    found = Flop(value, "analytic", "fp32", 1.0, 60e12, "a table", 1 / value)
    return Utilization(0.9, 0.9, found, found, 1e9, 1e10)


def test_utilization_is_reported_at_the_clock_that_was_measured_too():
    recording = DeviceStory().window("kernels", [1.0, 1.0]).recording()
    found = at_clock(flop(0.45), recording.run, 1.5e9)

    assert found.flop is not None
    assert found.flop.at_clock is not None
    assert found.flop.value == 0.45  # of the peak at its own clock, 2 GHz
    assert (found.flop.at_clock.value, found.flop.at_clock.clock_hz) == (pytest.approx(0.6), 1.5e9)
    assert found.flop.at_clock.peak_clock_hz == 2e9
    assert found.fp32 == found.flop


def test_a_measured_peak_or_an_unknown_clock_has_no_figure_at_a_clock():
    recording = DeviceStory().window("kernels", [1.0]).recording()
    measured = replace(recording.run, peaks=replace(PEAKS, clock_hz=None))

    assert at_clock(flop(0.45), recording.run, None) == flop(0.45)
    assert at_clock(flop(0.45), measured, 1.5e9) == flop(0.45)


def on_a_gpu() -> KernelStory:
    """Two counted steps of 10 ms on a GPU, in each a product of 180 GFLOP in 6 ms."""
    story = KernelStory(device="cuda:0")
    story.settle(-10 * MS, 0)
    for start in (0, 10 * MS):
        story.step(start, start + 10 * MS)
        sizes = {"batch": 1, "rows": 1, "columns": 1, "inner": 90_000_000_000}
        work = Work(Operation.MATMUL, sizes, moved_bytes=100, precision="fp32")
        span = story.operator("mm", Phase.FORWARD, start, start + MS, work=work)
        story.kernel("gemm", start + MS, start + 7 * MS, span=span)
    return story


def test_the_clock_of_the_kernels_window_finds_its_way_to_the_report():
    story = on_a_gpu()
    clocked = DeviceStory()
    clocked.strings, clocked.windows = story.strings, [story.window()]
    clocked.instants(counters.SM_CLOCK, lambda s: 1e9 if s < 0 else 1.5e9, np.array([-0.001, 0.001, 0.015]))
    clocked.stretches(counters.DRIVER_BUSY, 0.62, [-0.01, 0.02])
    summary = summarize(clocked.recording())

    assert summary.utilization is not None
    assert summary.utilization.flop is not None
    assert summary.utilization.flop.value == pytest.approx(180e9 / (0.006 * 60e12))  # 50 %
    assert summary.utilization.flop.at_clock is not None
    assert summary.utilization.flop.at_clock.value == pytest.approx(0.5 * 2 / 1.5)
    assert summary.device is not None
    assert summary.device.busy is not None
    assert (summary.device.busy.kernels, summary.device.busy.driver) == (pytest.approx(0.6), pytest.approx(0.62))
    assert summary.missing["device.busy.gpm"]


def test_a_clock_that_was_refused_has_its_reason_at_the_utilization():
    story = on_a_gpu()
    clocked = DeviceStory()
    clocked.strings, clocked.windows = story.strings, [story.window()]
    summary = summarize(clocked.recording({"device.sm_clock": "the driver refuses: Not Supported"}))

    assert summary.missing["utilization.mfu.at_clock"] == "the driver refuses: Not Supported"
    assert summary.missing["device"]
