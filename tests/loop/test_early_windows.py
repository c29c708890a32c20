"""The early windows: what a loop of few steps gets, and that a longer loop gets what it would without them."""

from pathlib import Path

import pytest
from fake_loop import profiler, train, windows
from fakes import FakeHook

from tbdprof.analysis.summary import summarize
from tbdprof.facts.file.reading import load
from tbdprof.facts.keys import RemarkOn
from tbdprof.facts.records import Strings
from tbdprof.hooks import Drained
from tbdprof.loop.plan import Plan, Schedule, plan_for
from tbdprof.loop.profiler import LoopProfiler
from tbdprof.report.json_report import document
from tbdprof.report.terminal import render

EARLY = [("warmup", 2), ("memory", 5), ("clean", 8), ("kernels", 11)]  # each with the step at whose end it ends
LATER = [("warmup", 17), ("clean", 27), ("memory", 31), ("clean", 41), ("kernels", 45), ("clean", 55)]
ALL = 55  # steps


def looped(
    steps: int, hook: FakeHook | None = None, path: Path | None = None, plan: Plan | None = None
) -> LoopProfiler:
    """Record a loop of so many steps, the early ones slow."""
    prof, hook = profiler(plan or plan_for("cpu", early_after=2), hook, path)
    with prof:
        train(prof, hook.clock, steps, lambda step: 0.5 if step < 11 else 0.1)
    return prof


@pytest.mark.parametrize("steps", range(1, 41))
def test_a_loop_of_so_many_steps_gets_these_windows(steps: int):
    prof = looped(steps)

    expected = [name for name, end in EARLY + LATER if end <= steps]
    assert [name for name, state, _ in windows(prof) if state == "complete"] == expected
    summary = summarize(prof.recording)
    # A memory window counts from its first step on, a clean one too, a kernels window without its first.
    assert (summary.memory is not None) == (steps >= 2 + 1)
    assert (summary.throughput is not None) == (steps >= 5 + 1)
    assert (summary.step_time is not None) == (steps >= 8 + 2)


def test_of_the_steps_of_a_short_loop_the_report_says_that_they_are_few():
    short, longer, whole = (looped(steps) for steps in (12, 30, ALL))

    assert document(summarize(short.recording))["run"]["early_steps"] == {"memory": 3, "clean": 3, "kernels": 3}
    assert "throughput of 3 steps, kernels of 3 steps, taken before" in render(summarize(short.recording))
    assert document(summarize(longer.recording))["run"]["early_steps"] == {"memory": 3, "kernels": 3}
    assert "  kernels of 3 steps, taken before" in render(summarize(longer.recording))
    assert document(summarize(whole.recording))["run"]["early_steps"] == {}
    assert "taken before" not in render(summarize(whole.recording))


@pytest.mark.parametrize("steps", [19, 24, 30, 41, ALL])
def test_throughput_is_of_settled_steps_alone_once_there_are_any(steps: int):
    throughput = summarize(looped(steps).recording).throughput

    assert throughput is not None
    assert throughput.rate.per_s == pytest.approx(8 / 0.1)
    assert not throughput.drifted


def test_a_long_loop_has_the_records_and_the_results_that_it_has_without_early_windows(tmp_path: Path):
    prof = looped(ALL, path=tmp_path / "a.tbd")
    looped(ALL, path=tmp_path / "b.tbd", plan=plan_for("cpu"))

    kept, other = load(tmp_path / "a.tbd"), load(tmp_path / "b.tbd")
    assert prof.recording.run.complete
    assert kept.run.settled is True
    for name in ("memory", "kernels", "clean"):
        with_rows = [window.tables for window in kept.named(name) if window.tables]
        expected = [window.tables for window in other.named(name)]
        assert [{kind: len(rows) for kind, rows in tables.items()} for tables in with_rows] == [
            {kind: len(rows) for kind, rows in tables.items()} for tables in expected
        ]
    assert summarize(kept).missing_now == summarize(other).missing_now == {}
    assert (tmp_path / "a.tbd").stat().st_size <= 1.1 * (tmp_path / "b.tbd").stat().st_size


def test_at_every_step_the_file_has_an_early_window_or_the_later_one(tmp_path: Path):
    prof, hook = profiler(plan_for("cpu", early_after=2), path=tmp_path / "a.tbd")
    with prof:
        train(prof, hook.clock, 11)
        for _ in range(11, ALL):
            train(prof, hook.clock, 1)
            kept = summarize(load(tmp_path / "a.tbd"))  # what a killed loop leaves
            assert None not in (kept.memory, kept.step_time)


class LosesLater(FakeHook):
    """Another profiler takes the events of the later windows."""

    begun = 0

    def start(self, window: str) -> None:
        super().start(window)
        self.begun += 1

    def drain(self, strings: Strings) -> Drained:
        found = super().drain(strings)
        return found if self.begun <= 2 else Drained({}, (), {})


class FailsLater(LosesLater):
    """tbdprof fails in the later windows."""

    def drain(self, strings: Strings) -> Drained:
        if self.begun > 2:
            raise ZeroDivisionError
        return super().drain(strings)


@pytest.mark.parametrize("hook", [LosesLater, FailsLater])
def test_a_later_window_that_is_lost_replaces_nothing(hook: type[LosesLater]):
    recording = looped(ALL, hook()).recording
    summary = summarize(recording)

    assert None not in (summary.memory, summary.step_time)
    assert summary.early_steps == {"memory": 3, "kernels": 3}
    assert any(key.startswith(RemarkOn.GIVEN_UP) for key in recording.missing) == (hook is FailsLater)


def test_what_an_early_window_lacked_is_no_longer_missing_once_a_later_one_has_it():
    prof, hook = profiler(plan_for("cpu", early_after=2), FakeHook(busy="another profiler is active"))
    with prof:
        train(prof, hook.clock, 12)
        assert prof.recording.missing == dict.fromkeys(("memory", "kernels"), "another profiler is active")
        hook.busy = None
        train(prof, hook.clock, ALL - 6)

    assert prof.recording.run.complete
    assert prof.recording.missing == {}


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
@pytest.mark.parametrize(
    "stated", [Schedule(steps=10), Schedule(warmup=0), Schedule(max_warmup=22), Schedule(repeat=2)]
)
def test_a_stated_plan_is_exactly_what_it_says(device: str, stated: Schedule):
    assert plan_for(device, stated, early_after=2) == plan_for(device, stated)
    assert plan_for(device, Schedule(), early_after=2) != plan_for(device, Schedule())
