"""The sampled window of a run: there where counters can be sampled, and never in the way of the loop."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import FakeClock, FakeHook
from make import run

from tbdprof.analysis.summary import summarize
from tbdprof.collect.pm.collector import CounterSampler
from tbdprof.facts.records import Strings
from tbdprof.hooks import Drained
from tbdprof.launch import choose_instruments
from tbdprof.launch.choose_instruments import instruments_for
from tbdprof.loop.instruments import Instruments
from tbdprof.loop.plan import WINDOWS, WITH_SAMPLED, Plan
from tbdprof.loop.profiler import LoopProfiler
from tbdprof.report import json_report

FAKE = Path(__file__).parents[1] / "support" / "fake_sidecar.py"
PLAN = Plan(warmup=2, steps=4, memory_steps=3, kernel_steps=3, windows=WITH_SAMPLED)


def profiled(mode: str, hook: FakeHook | None = None) -> LoopProfiler:
    hook = hook or FakeHook(clock=FakeClock())
    sampler = CounterSampler("cuda:0", command=[sys.executable, str(FAKE), mode])
    own = Instruments({"sampled": [sampler]}, WITH_SAMPLED)
    with LoopProfiler(hook, run(), PLAN, clock=hook.clock, instruments=own) as prof:
        for _ in range(40):
            hook.clock.sleep(0.1)
            prof.step(8)
    return prof


def test_samples_are_kept_with_the_window_they_are_of():
    recording = profiled("good").recording

    assert {window.name: len(window.table("sample")) for window in recording.windows} == {
        "warmup": 0,
        "clean": 0,
        "memory": 0,
        "kernels": 0,
        "sampled": 7,
    }
    assert recording.run.complete


def test_the_report_says_how_many_steps_were_sampled():
    assert json_report.document(summarize(profiled("good").recording))["run"]["steps"]["sampled"] == 3


@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        ("refused", "the driver keeps counters for root"),
        ("killed", "the sampling process was killed by signal 9"),
    ],
)
def test_without_samples_the_window_has_its_kernels_and_the_run_goes_on(mode: str, reason: str):
    prof = profiled(mode)

    assert prof.recording.missing["sampled"].startswith(reason)
    assert [len(window.table("step")) for window in prof.recording.named("sampled")] == [3]
    assert len(prof.recording.named("clean")) == 4
    assert prof.recording.run.complete


class SilentWhenSampled(FakeHook):
    """A framework that reports no kernel while counters are sampled: in the second of its kernels windows."""

    def drain(self, strings: Strings) -> Drained:
        drained = super().drain(strings)
        silent = self.operators is not None and self.calls.count("start kernels") == 2
        return replace(drained, missing={"kernels": "no kernel reported", "else": "not here"}) if silent else drained


def test_what_a_hook_lacks_in_the_sampled_window_is_not_said_of_the_kernels_window():
    prof = profiled("good", SilentWhenSampled(clock=FakeClock()))

    assert prof.recording.missing["sampled"] == "no kernel reported"
    assert prof.recording.missing["else (sampled)"] == "not here"
    assert "kernels" not in prof.recording.missing
    assert "kernels" not in summarize(prof.recording).missing


def test_a_gpu_whose_counters_can_be_sampled_has_the_window(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(choose_instruments, "available", lambda device: None)

    found = instruments_for("cuda:0", "torch")

    assert found.windows == WITH_SAMPLED
    assert isinstance(found.collectors["sampled"][0], CounterSampler)
    assert not any(isinstance(each, CounterSampler) for each in found.collectors["kernels"])
    assert "sampled" not in found.missing


def test_a_gpu_whose_counters_cannot_be_sampled_says_why(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(choose_instruments, "available", lambda device: "kept for root")

    found = instruments_for("cuda:0", "torch")

    assert found.windows == WINDOWS
    assert found.missing["sampled"] == "kept for root"


def test_a_cpu_is_not_asked(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(choose_instruments, "available", lambda device: pytest.fail("asked"))

    assert instruments_for("cpu", "torch").windows == WINDOWS
