"""The device's section of the report, and its fields in the JSON: named, in units, null with a reason."""

import json
from dataclasses import replace

import numpy as np
import pytest
from device_story import DeviceStory, steady
from report.test_reporters import FULL, explained, nulls, profiled
from report_results import FLOP, PEAKS, measured

from tbdprof.analysis.device import energy
from tbdprof.analysis.summary import summarize
from tbdprof.facts import counters
from tbdprof.report import json_report, terminal
from tbdprof.results.device import BusyCompared
from tbdprof.results.kernels import AtClock, Utilization
from tbdprof.results.summary import Summary

EDGES = [0.0, 1.0, 2.0, 3.0, 4.0]
GPM = {
    "GPM_BUSY": 0.9,
    "GPM_SM_ACTIVE": 0.8,
    "GPM_OCCUPANCY": 0.3,
    "GPM_FP32": 0.45,
    "GPM_TENSOR": 0.0,
    "GPM_DRAM": 0.2,
}


def sampled(story: DeviceStory) -> DeviceStory:
    """Sample the last window with everything a driver reports; until its second block it was held down by its power."""
    times = np.arange(0, 41) / 10
    story.instants(counters.POWER, lambda s: 480.0 if s < 2 else 520.0, times)
    story.instants(counters.ENERGY, lambda s: 500.0 * s, times)
    story.instants(counters.SM_CLOCK, lambda s: 1.4e9 + 1e8 * (s >= 2), times)
    story.instants(counters.SM_CLOCK_MAX, 1.98e9, np.array([0.0]))
    story.instants(counters.MEMORY_CLOCK, 3.2e9, times)
    story.instants(counters.TEMPERATURE, 61.0, np.array([0.0, 4.0]))
    story.instants(counters.THROTTLE, lambda s: 4.0 if s < 2 else 0.0, times)
    story.stretches(counters.DRIVER_BUSY, 0.92, EDGES)
    for name, value in GPM.items():
        story.stretches(getattr(counters, name), value, EDGES)
    return story


def summary_of(**facts: object) -> Summary:
    story = sampled(DeviceStory().window("clean", [2.0, 2.0], units=100.0))
    return summarize(sampled(story.window("kernels", [2.0, 2.0])).recording(**{"unit": "samples", **facts}))


def test_energy_comes_first_in_joules_a_sample_with_how_it_was_obtained():
    text = terminal.render(summary_of(), width=160)

    assert "10 J/sample in the clean windows, by the energy counter, 0.999 of its power over time" in text
    assert "500 W on average, 480 to 520 W (samples of an instant, one every 100 ms)" in text
    assert "÷ throughput" not in text
    assert "10.01 J/sample (power ÷ throughput)" in terminal.render(summary_of(), width=160, full=True)


@pytest.mark.parametrize(
    ("name", "covers", "remark"),
    [
        ("NVIDIA H200", "the GPU", "by the energy counter, "),
        ("NVIDIA GH200 480GB", energy.THE_MODULE, f"by the energy counter of {energy.THE_MODULE}, "),
        ("NVIDIA GB200", energy.THE_MODULE, f"by the energy counter of {energy.THE_MODULE}, "),
    ],
)
def test_a_counter_that_counts_the_cpu_of_its_module_too_is_reported_so(name: str, covers: str, remark: str):
    summary = summary_of(device_name=name)

    assert json_report.document(summary)["energy"]["covers"] == covers
    assert remark in terminal.render(summary, width=200)


def test_power_over_time_is_of_the_gpu_wherever_its_module_has_a_cpu():
    story = DeviceStory().window("clean", [2.0, 2.0]).instants(counters.POWER, 500.0, np.arange(0, 41) / 10)

    found = energy.energy(story.recording(device_name="NVIDIA GH200 480GB"), None).value

    assert found is not None
    assert (found.source, found.covers) == ("power", energy.THE_GPU)


@pytest.mark.parametrize(("watts", "apart"), [(480.0, False), (520.0, False), (470.0, True), (530.0, True)])
def test_a_counter_more_than_a_twentieth_from_the_power_is_marked(watts: float, apart: bool):
    text = terminal.render(summarize(steady(watts=watts).recording()), width=160)

    assert ("! more than 5 % apart" in text) is apart


def test_clocks_throttling_temperature_and_gpm_have_their_lines():
    text = terminal.render(summary_of(), width=200)

    assert "clean 1451 (1400–1500), kernels 1500 MHz; at most 1980 MHz" in text
    assert "48.8 % of the samples: power cap 48.8 %" in text
    assert "throttled, kernels" not in text  # its second block, which counts, was not
    assert "at most 61 °C" in text
    assert "clean 92.0 %, kernels 92.0 % (a sample every 1000 ms)" in text
    assert "FP32 45.0 %, FP32 while busy 50.0 %, tensor 0.0 %, DRAM 20.0 % (level: device)" in text


def compared(busy: BusyCompared) -> str:
    summary = summary_of()
    assert summary.device is not None
    return terminal.render(replace(summary, device=replace(summary.device, busy=busy)), width=200)


def test_busy_by_each_instrument_stands_side_by_side():
    text = compared(BusyCompared(0.91, 0.92, 0.9, 15.0))

    assert (
        "kernels' own times 91.0 %, driver 92.0 % (+1.0 points), GPM 90.0 % (-1.0 points) in the kernels window" in text
    )
    assert "differ by more" not in text
    assert "! they differ by more than 3 points" in compared(BusyCompared(0.91, 0.95, None, 15.0))
    assert "compared" not in compared(BusyCompared(0.91, None, None, 15.0))
    assert "too short to compare, it takes 10 s of kernels windows" in compared(BusyCompared(0.91, 0.2, None, 0.2))


def test_a_run_without_samples_has_no_section():
    assert "as its driver sees it" not in terminal.render(summarize(profiled(FULL)), width=100)


@pytest.mark.parametrize("width", [60, 100, 200])
def test_the_section_fits_its_terminal(width: int):
    assert max(map(len, terminal.render(summary_of(), width=width, full=True).splitlines())) <= width


def test_the_json_has_every_figure_by_window():
    document = json.loads(json_report.render(summary_of()))
    found = document["device"]

    assert found["driver_busy"] == {"clean": 0.92, "kernels": 0.92, "period_s": 1.0}
    assert found["gpm"]["kernels"] == {
        "busy": 0.9, "sm_active": 0.8, "sm_occupancy": 0.3, "fp32": 0.45, "fp32_while_busy": 0.5, "tensor": 0.0,
        "dram": 0.2,
    }  # fmt: skip
    assert found["sm_clock"]["kernels"] == {
        "mean_hz": 1.5e9, "min_hz": 1.5e9, "max_hz": 1.5e9, "of_most": pytest.approx(1.5 / 1.98),
    }  # fmt: skip
    assert found["sm_clock"]["most_hz"] == 1.98e9
    assert found["clock_reasons"]["kernels"] == {"throttled": 0.0, "shares": {}}
    assert found["most_celsius"] == {"clean": 61.0, "kernels": 61.0}
    assert found["memory_clock_hz"]["clean"] == 3.2e9
    assert found["busy"] is None
    assert document["missing"]["device.busy"]
    energy = document["energy"]
    assert (energy["source"], energy["joules_per_unit"], energy["joules_per_sample"]) == ("counter", 10.0, 10.0)
    assert energy["power"]["samples"] == "of an instant"
    assert energy["counter_over_power"] == pytest.approx(2000 / 2002)
    assert energy["windows"] == [
        {"seconds": 4.0, "units": 200.0, "counter_joules": 2000.0, "power_joules": pytest.approx(2002)}
    ]


def test_joules_a_sample_of_a_run_that_counts_steps_come_from_its_batch():
    document = json.loads(json_report.render(summary_of(unit="steps", batch_size=50)))

    assert document["energy"]["joules_per_unit"] == 10.0
    assert document["energy"]["joules_per_sample"] == pytest.approx(10.0 * 100 / 50)  # a step's 100 units are of 50


def bare() -> DeviceStory:
    return DeviceStory().window("clean", [2.0, 2.0])


RUNS = {
    "everything": summary_of,
    "no unit's samples": lambda: summary_of(unit="tokens"),
    "nothing": lambda: summarize(bare().recording({"device": "the NVIDIA driver does not answer: no such file"})),
    "power alone": lambda: summarize(bare().instants(counters.POWER, 400.0, np.arange(0, 41) / 10).recording()),
    "one sample": lambda: summarize(bare().instants(counters.POWER, 400.0, np.array([1.0])).recording()),
    "a short window": lambda: summarize(
        DeviceStory().window("clean", [0.5]).instants(counters.ENERGY, 5.0, np.array([0.0, 0.5])).recording()
    ),
    "a clock alone": lambda: summarize(bare().instants(counters.SM_CLOCK, 1e9, np.array([1.0])).recording(peaks=None)),
    "half of gpm": lambda: summarize(bare().stretches(counters.GPM_FP32, 0.5, EDGES).recording()),
    "polled": lambda: summarize(bare().instants(counters.DRIVER_BUSY, 0.5, np.array([1.0])).recording()),
    "no units": lambda: summarize(
        DeviceStory()
        .window("clean", [4.0], units=0.0)
        .instants(counters.ENERGY, lambda s: s, np.arange(5.0))
        .recording()
    ),
    "on a CPU": lambda: summarize(bare().recording(device="cpu")),
    "a busy device": lambda: measured(summarize(sampled(bare().window("kernels", [2.0, 2.0])).recording())),
}


@pytest.mark.parametrize("name", RUNS)
def test_every_null_has_its_reason(name: str):
    document = json.loads(json_report.render(RUNS[name]()))
    missing = document["missing"]

    parts = {"device": document["device"], "energy": document["energy"]}
    assert [path for path in nulls(parts) if not explained(path, missing)] == []
    assert all(missing.values())


def on_a_gpu(value: float, level: str = "analytic") -> str:
    """Return the first screen of a run on a GPU that ran at half of its highest clock."""
    flop = replace(FLOP, value=value, level=level, at_clock=AtClock(2 * value, 0.99e9, 1.98e9))
    summary = measured(summarize(profiled(FULL)), utilization=Utilization(0.79, 0.8, flop, flop, 1e9, 8e9))
    run = replace(
        summary.recording.run,
        device="cuda:0",
        peaks=replace(PEAKS, clock_hz=1.98e9),
        precision_flags={"cuda.matmul.fp32_precision": "ieee", "cudnn.benchmark": "True"},
    )
    return terminal.render(replace(summary, recording=replace(summary.recording, run=run)), width=160)


def test_utilization_names_both_clocks_and_the_setting_of_tf32():
    text = on_a_gpu(0.4)

    assert "80.0 % of the peak at the 990 MHz it ran at (the peak above is at 1980 MHz)" in text
    assert "TF32              cuda.matmul.fp32_precision ieee\n" in text
    assert "benchmark" not in text


def test_above_1_is_marked_where_it_is_analytic_and_an_error_where_it_was_counted():
    assert "ERROR" not in on_a_gpu(1.2)
    assert "120.0 % while busy (analytic" in on_a_gpu(1.2)
    assert "120.0 % ! of the peak at the 990 MHz" in on_a_gpu(0.6)
    assert "ERROR: 120.0 % while busy (counted" in on_a_gpu(1.2, "counted")
    assert "ERROR: 120.0 % while busy (sampled" in on_a_gpu(1.2, "sampled")
