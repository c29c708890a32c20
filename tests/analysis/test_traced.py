"""Records of kernels that were lost, and the residual of their clock, on their way to the report."""

import json

import pytest
from make import KernelStory

from tbdprof.analysis.device.traced import traced
from tbdprof.analysis.summary import summarize
from tbdprof.facts.counters import CLOCK_RESIDUAL, LOST
from tbdprof.facts.recording import Recording
from tbdprof.facts.records import Phase
from tbdprof.report import json_report, terminal
from tbdprof.results.device import Traced


def recorded(lost: float, residual_ns: float, *, kernels: bool = True, device: str = "cuda:0") -> Recording:
    story = KernelStory(device=device)
    story.settle()
    story.step(0, 100)
    span = story.operator("f", Phase.FORWARD, 0, 50)
    if kernels:
        story.kernel("f", 10, 60, span=span)
    for counter, value in ((LOST, lost), (CLOCK_RESIDUAL, residual_ns)):
        story.samples.append((story.strings.add(counter), -1, 100, value, 0))  # of the process, not of a device
    return story.recording()


def test_what_was_lost_is_summed_over_windows_and_the_largest_residual_reported():
    recording = recorded(3, 1500)
    again = recording.windows[0].tables["sample"].copy()
    again["value"] = [2, 700]
    recording.windows.append(type(recording.windows[0])(1, "kernels", "complete", {**recording.windows[0].tables}))
    recording.windows[1].tables["sample"] = again

    assert traced(recording).value == Traced(5, 1500)


def test_the_report_has_both():
    summary = summarize(recorded(3, 1500))

    assert json.loads(json_report.render(summary))["records"] == {"lost": 3, "clock_residual_s": 1.5e-6}
    assert "3 of kernels and copies lost; the device's times may be off by 1.5 µs" in terminal.render(summary)
    assert "none of kernels and copies lost" in terminal.render(summarize(recorded(0, 0)))


@pytest.mark.parametrize(
    ("device", "reason"),
    [("cpu", "reported on a GPU only"), ("cuda:0", "no kernel was reported in the kernels windows")],
)
def test_where_no_kernel_was_reported_nothing_is_said_to_be_lost_or_not(device: str, reason: str):
    summary = summarize(recorded(0, 0, kernels=False, device=device))

    assert summary.traced is None
    assert summary.missing["records"] == reason
    assert "of kernels and copies lost" not in terminal.render(summary)
