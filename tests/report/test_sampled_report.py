"""What the reports say of sampled counters."""

import json
from dataclasses import replace

import pytest
from pm_story import DEVICE, US, PmStory, three

from tbdprof.analysis.device.levels import pipe_use
from tbdprof.analysis.device.sampled import measure
from tbdprof.analysis.summary import summarize
from tbdprof.facts.counters import PM_BUSY, PM_CLOCK, PM_FP32, PM_FP32_LITE, PM_LOST, PM_RESIDUAL, PM_TENSOR
from tbdprof.facts.recording import Window
from tbdprof.report import json_report
from tbdprof.report.terminal import render
from tbdprof.report.terminal_parts.sampled_text import line
from tbdprof.results.levels import Pipes, PipeUse
from tbdprof.results.sampled import Sampled


def summary_of(story: PmStory):
    """Return the summary of a story between two clean windows whose steps take 700 µs."""
    recording = story.recording(story.seen(noise=0.0))
    (middle,) = recording.windows
    steps = middle.table("step")
    clean = steps.copy()
    clean["end_ns"] = clean["start_ns"] + 700 * US
    recording.windows[:] = [
        Window(0, "clean", "complete", {"step": clean}),
        Window(1, "sampled", "complete", middle.tables),
        Window(2, "clean", "complete", {"step": clean}),
    ]
    return summarize(recording)


def test_the_summary_has_the_cost_of_sampling_against_its_neighbours():
    summary = summary_of(three())

    assert summary.sampled_overhead is not None
    assert summary.sampled_overhead.ratio == pytest.approx(731 / 700)


def test_the_json_has_the_sampled_level():
    document = json.loads(json_report.render(summary_of(three())))

    assert document["utilization"]["fp32_pipe"]["level"] == "sampled"
    assert document["utilization"]["fp32_pipe"]["value"] == pytest.approx(0.2846, abs=0.003)
    assert document["utilization"]["fp32_pipe"]["low"] == pytest.approx(0.1423, abs=0.0015)
    assert document["utilization"]["tensor_pipe"]["value"] == pytest.approx(0.1423, abs=0.0015)
    assert document["overhead"]["sampled_window"]["ratio"] == pytest.approx(731 / 700)
    assert document["sampled"]["offset"] == {"seconds": 0.0, "found_by": PM_BUSY}
    (first, *_) = document["sampled"]["kernels"]
    assert (first["name"], first["grid"], first["reason"]) == ("kernel_0", "[64, 1, 1]", None)
    assert first["fp32"]["value"] == pytest.approx(0.5, abs=1e-6)
    assert first["dram"] is None


def test_the_report_shows_the_pipes_from_their_lower_to_their_upper_bound():
    text = render(summary_of(three()), width=160, full=True)

    assert "sampled" in text
    assert "FP32 pipe 14.2–28.4 %, tensor pipe 14.2 % while busy" in text.replace("14.3", "14.2").replace(
        "28.5", "28.4"
    )
    assert "Kernels, sampled" in text
    assert "25.0–50.0 %" in text


def test_a_line_without_a_lower_bound_has_the_upper_one_alone():
    found = Sampled(10, 100 * US, None, None, {PM_CLOCK: 1e9}, {PM_FP32: 0.5, PM_TENSOR: 0.25})

    assert line(found) == "FP32 pipe 50.0 %, tensor pipe 25.0 % while busy (10 samples)"
    assert line(replace(found, while_busy={})) == ""
    assert PM_FP32_LITE not in found.while_busy


def test_where_the_driver_alone_reports_the_fp32_pipe_its_lower_bound_has_a_reason():
    story = three()
    recording = story.recording(story.seen())
    recording.missing["sampled"] = "kept for root"
    del recording.windows[0].tables["sample"]
    sampled = measure(recording)
    pipes = pipe_use(recording, sampled, Pipes(0.1, 0.2))

    assert sampled.missing == {"": "kept for root"}
    assert pipes.value == (PipeUse(0.1, "device"), PipeUse(0.2, "device"))
    assert pipes.missing == {"fp32_pipe.low": "kept for root"}
    assert "utilization.fp32_pipe.low" not in summarize(story.recording(story.seen())).missing


def test_a_run_on_the_cpu_says_that_it_is_of_a_gpu():
    story = three()
    recording = story.recording(story.seen())
    recording.run = replace(recording.run, device="cpu")
    missing = summarize(recording).missing

    assert missing["sampled"] == missing["overhead.sampled_window"] == "reported on a GPU only"
    assert DEVICE != "cpu"


@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize("without", [None, PM_BUSY, PM_FP32, PM_FP32_LITE, PM_TENSOR, PM_LOST, PM_RESIDUAL])
def test_every_null_of_the_sampled_level_has_its_reason(kernels: bool, without: str | None):
    story = three()
    recording = story.recording(story.seen(), kernels=kernels)
    rows = recording.windows[0].tables["sample"]
    kept = [recording.strings[int(each)] != without for each in rows["counter"]]
    recording.windows[0].tables["sample"] = rows[kept]
    document = json.loads(json_report.render(summarize(recording)))
    part, missing = document["sampled"], document["missing"]
    whole = {name: part[name] for name in ("lost", "kernels_busy", "clock_residual_s", "offset")}
    means = {f"{group}.{name}": value for group in ("elapsed", "while_busy") for name, value in part[group].items()}

    absent = [name for name, value in {**whole, **means}.items() if value is None]

    assert {"elapsed.warps", "while_busy.dram"} <= set(absent)
    assert [name for name in absent if f"sampled.{name}" not in missing] == []
    assert [name for name in {**whole, **means} if name not in absent and f"sampled.{name}" in missing] == []
