"""What a profiler does around a loop, whatever its windows: begins, ends, keeps and reports."""

import threading
from pathlib import Path

import pytest
from fake_loop import WHOLE, profiler, train, windows
from fakes import FakeHook, ProgressLog
from make import run

from tbdprof.analysis.summary import summarize
from tbdprof.errors import UnavailableError, UsageError
from tbdprof.facts.file.placing import save
from tbdprof.facts.file.reading import load
from tbdprof.facts.records import Peaks, Role
from tbdprof.loop.plan import NO_STEPS, Plan
from tbdprof.loop.profiler import LoopProfiler
from tbdprof.report.terminal import render


def test_the_memory_window_is_analysed():
    prof, hook = profiler()
    with prof:
        train(prof, hook.clock, 13)

    memory = summarize(prof.recording).memory
    assert memory is not None
    assert memory.allocator_peak_bytes == memory.independent_peak_bytes == 240
    assert memory.roles_at_peak[Role.WEIGHT] == 100
    assert memory.mismatches == 0


def test_the_kernels_window_is_analysed():
    prof, hook = profiler(WHOLE)
    with prof:
        train(prof, hook.clock, 20)

    summary = summarize(prof.recording)
    assert summary.utilization is not None
    assert summary.utilization.flops_per_step == 2 * 2 * 5**3  # two products of 5 × 5 matrices
    assert summary.utilization.busy_in_window == pytest.approx(1)
    assert summary.layers is not None
    dense = next(each for each in summary.layers if each.layer == "dense")
    assert (dense.forward_seconds, dense.backward_seconds) == pytest.approx((0.025, 0.05))


def test_peaks_that_are_not_known_are_missing_with_their_reason(monkeypatch: pytest.MonkeyPatch):
    def peaks(precisions: list[str]) -> None:
        raise UnavailableError("the peak of a fake is not known")

    prof, hook = profiler(WHOLE)
    monkeypatch.setattr(hook, "peaks", peaks)
    with prof:
        train(prof, hook.clock, 20)

    assert prof.recording.missing == {"peaks": "the peak of a fake is not known"}


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (0, [("warmup", "cut short", 0)]),
        (1, [("warmup", "cut short", 1)]),
        (3, [("warmup", "complete", 2), ("clean", "cut short", 1)]),
        (8, [("warmup", "complete", 2), ("clean", "complete", 4), ("memory", "cut short", 2)]),
    ],
)
def test_a_loop_that_ends_early_keeps_what_there_is(steps: int, expected: list[tuple[str, str, int]]):
    prof, hook = profiler()
    with prof:
        train(prof, hook.clock, steps)

    assert windows(prof) == expected
    assert not prof.recording.run.complete
    assert hook.closed == 1
    assert "incomplete" in render(summarize(prof.recording))
    assert (summarize(prof.recording).memory is not None) == (steps == 8)


def test_a_loop_that_never_steps_says_so():
    prof, _ = profiler()
    with prof:
        pass

    assert "prof.step() was never called" in summarize(prof.recording).missing["throughput"]


def test_an_exception_in_the_loop_passes_through_and_the_recording_is_kept(tmp_path: Path):
    prof, hook = profiler(path=tmp_path / "a.tbd")

    def loop() -> None:
        with prof:
            train(prof, hook.clock, 8)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        loop()

    kept = load(tmp_path / "a.tbd")
    assert kept.run.ended_by == "ZeroDivisionError"
    assert [window.state for window in kept.windows] == ["complete", "complete", "cut short"]
    assert hook.calls[-1] == "stop"
    assert hook.closed == 1


def test_without_a_count_of_samples_steps_are_counted():
    prof, hook = profiler()
    with prof:
        for _ in range(13):
            hook.clock.sleep(0.5)
            prof.step()

    assert summarize(prof.recording).throughput is not None
    assert summarize(prof.recording).throughput.unit == "steps"
    assert summarize(prof.recording).throughput.rate.per_s == pytest.approx(2)
    assert "throughput.samples_per_s" in summarize(prof.recording).missing


def test_the_memory_windows_cost_is_stated():
    prof, hook = profiler(hook=FakeHook(memory_step_s=0.05))
    with prof:
        train(prof, hook.clock, 13)

    cost = summarize(prof.recording).memory_overhead
    assert cost is not None
    assert cost.ratio == pytest.approx(1.5)


def test_the_file_grows_window_by_window(tmp_path: Path):
    prof, hook = profiler(path=tmp_path / "a.tbd")
    seen = []
    with prof:
        for _ in range(13):
            hook.clock.sleep(0.1)
            prof.step(1)
            seen.append(load(tmp_path / "a.tbd").lost_windows)

    assert seen[2] == ["clean (window 1)"]
    assert seen[7] == ["memory (window 2)"]
    assert seen[12] == []
    assert load(tmp_path / "a.tbd").run.complete


def test_a_file_that_can_no_longer_be_written_costs_the_file_not_the_run(tmp_path: Path):
    prof, hook = profiler(path=tmp_path / "a.tbd")
    with prof:
        train(prof, hook.clock, 3)
        prof._recorder._file._writer._connection.execute("DROP TABLE column_block")  # type: ignore[union-attr]
        train(prof, hook.clock, 10)

    assert prof.recording.run.complete
    assert "writing the file failed" in prof.recording.missing["file"]
    assert summarize(prof.recording).memory is not None


def test_saving_afterwards_equals_recording_meanwhile(tmp_path: Path):
    prof, hook = profiler(path=tmp_path / "a.tbd")
    with prof:
        train(prof, hook.clock, 13)
    save(prof.recording, tmp_path / "b.tbd")

    assert str(load(tmp_path / "a.tbd").run) == str(load(tmp_path / "b.tbd").run)


def test_the_search_for_the_peak_is_reported_before_it_and_only_where_there_is_one():
    hook, log = FakeHook(), ProgressLog()
    prof = LoopProfiler(hook, run(), Plan(), progress=log, clock=hook.clock)
    prof.find_peaks()
    prof.find_peaks()

    assert log.reported == [("find the device's peak", 0, NO_STEPS)]


def test_a_peak_that_could_not_be_found_is_not_looked_for_again(monkeypatch: pytest.MonkeyPatch):
    prof, hook = profiler(Plan())
    asked = list[list[str]]()

    def none(precisions: list[str]) -> Peaks:
        asked.append(precisions)
        raise UnavailableError("the probe failed")

    monkeypatch.setattr(hook, "peaks", none)
    prof.find_peaks()
    with prof:
        pass

    assert asked == [["fp32"]]
    assert prof.recording.missing["peaks"] == "the probe failed"


@pytest.mark.parametrize("calls", [[8, None], [None, 8], [-1], [float("nan")], [float("inf")]])
def test_steps_with_and_without_a_count_or_with_a_senseless_one_are_refused(calls: list[float | None]):
    prof, _ = profiler()
    with prof:
        for units in calls[:-1]:
            prof.step(units)

        with pytest.raises(UsageError, match=r"give every step the samples"):
            prof.step(calls[-1])


def test_a_profiler_is_used_once():
    prof, hook = profiler()
    with prof:
        train(prof, hook.clock, 13)

    with pytest.raises(UsageError, match="used already"):
        prof.start()
    assert prof.recording.run.complete


def test_steps_may_come_from_another_thread(tmp_path: Path):
    prof, hook = profiler(path=tmp_path / "a.tbd")
    with prof:
        thread = threading.Thread(target=train, args=(prof, hook.clock, 13))
        thread.start()
        thread.join()

    assert load(tmp_path / "a.tbd").run.complete
    assert prof.recording.missing == {}


def test_while_it_runs_the_report_says_so():
    prof, hook = profiler()
    assert prof.recording.run.ended_by == "it never started"
    with prof:
        train(prof, hook.clock, 1)
        assert prof.recording.run.ended_by == "it is still running"


def measured_in_turn(monkeypatch: pytest.MonkeyPatch, hook: FakeHook, *loads: float | None) -> list[int]:
    """Let a hook measure a peak under these loads of other processes, a higher one each time; return when it did."""
    windows_before, left = list[int](), list(loads)

    def peaks(precisions: list[str]) -> Peaks:
        windows_before.append(sum(call.startswith("start") for call in hook.calls))
        rate = 1e9 * len(windows_before)
        return Peaks(dict.fromkeys(precisions, rate), None, dict.fromkeys(precisions, "a fake"), others=left.pop(0))

    monkeypatch.setattr(hook, "peaks", peaks)
    return windows_before


@pytest.mark.parametrize(
    ("loads", "at_windows", "rate", "at_most"),
    [((0.4, 0.02), [0, 2], 2e9, False), ((0.4, 0.3), [0, 2], 2e9, True), ((0.02,), [0], 1e9, False)],
)
def test_a_peak_that_others_disturbed_is_measured_again_after_the_windows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loads, at_windows, rate, at_most
):
    prof, hook = profiler(WHOLE, path=tmp_path / "a.tbd")
    measured = measured_in_turn(monkeypatch, hook, *loads)
    with prof:
        train(prof, hook.clock, 20)

    assert measured == at_windows
    use = summarize(load(tmp_path / "a.tbd")).utilization
    assert use is not None
    assert use.flop is not None
    assert (use.flop.peak_flops_per_s, use.flop.at_most) == (rate, at_most)


def test_a_loop_that_fails_is_not_held_up_by_another_measurement(monkeypatch: pytest.MonkeyPatch):
    prof, hook = profiler(WHOLE)
    measured = measured_in_turn(monkeypatch, hook, 0.4)
    prof.start()
    train(prof, hook.clock, 17)
    prof.stop("ValueError", ValueError("planted"))

    assert measured == [0]
    assert prof.recording.run.peaks is not None
    assert prof.recording.run.peaks.is_disturbed
