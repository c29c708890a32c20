"""The course of windows around any loop, with a fake framework and a fake clock."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import FakeClock, FakeHook, ProgressLog
from make import run

from tbdprof import recording as files
from tbdprof.errors import UnavailableError, UsageError
from tbdprof.hooks import Drained
from tbdprof.plan import Plan, plan_for
from tbdprof.profiler import Profiler
from tbdprof.records import Role

MEMORY = ("clean", "memory", "clean")
SHORT = Plan(warmup=2, steps=4, memory_steps=3, windows=MEMORY)
WHOLE = Plan(warmup=2, steps=4, memory_steps=3, kernel_steps=3)


def profiler(plan: Plan = SHORT, hook: FakeHook | None = None, path: Path | None = None) -> tuple[Profiler, FakeHook]:
    hook = hook or FakeHook()
    return Profiler(hook, run(), plan, path=path, clock=hook.clock), hook


def train(prof: Profiler, clock: FakeClock, steps: int, seconds: Callable[[int], float] = lambda step: 0.1) -> None:
    for step in range(steps):
        clock.sleep(seconds(step))
        prof.step(8)


def windows(prof: Profiler) -> list[tuple[str, str, int]]:
    return [(window.name, window.state, len(window.table("step"))) for window in prof.recording.windows]


def test_warmup_then_the_five_windows_then_nothing():
    prof, hook = profiler(WHOLE)
    with prof:
        train(prof, hook.clock, 30)
        assert not prof.active

    assert windows(prof) == [
        ("warmup", "complete", 2),
        ("clean", "complete", 4),
        ("memory", "complete", 3),
        ("clean", "complete", 4),
        ("kernels", "complete", 3),
        ("clean", "complete", 4),
    ]
    assert prof.recording.run.complete
    assert hook.closed == 1
    assert prof.summary.throughput is not None
    assert prof.summary.throughput.rate.per_s == pytest.approx(80)
    assert prof.summary.missing_now == {}


def test_the_memory_window_is_analysed():
    prof, hook = profiler()
    with prof:
        train(prof, hook.clock, 13)

    memory = prof.summary.memory
    assert memory is not None
    assert memory.allocator_peak_bytes == memory.independent_peak_bytes == 240
    assert memory.roles_at_peak[Role.WEIGHT] == 100
    assert memory.mismatches == 0


def test_the_kernels_window_is_analysed():
    prof, hook = profiler(WHOLE)
    with prof:
        train(prof, hook.clock, 20)

    summary = prof.summary
    assert summary.utilization is not None
    assert summary.utilization.flops_per_step == 2 * 2 * 5**3  # two products of 5 × 5 matrices
    assert summary.utilization.busy_in_window == pytest.approx(1)
    assert summary.layers is not None
    dense = next(each for each in summary.layers if each.layer == "dense")
    assert (dense.forward_seconds, dense.backward_seconds) == pytest.approx((0.025, 0.05))


def test_a_kernels_window_waits_only_at_the_ends_of_its_blocks():
    plan = Plan(warmup=1, kernel_steps=6, kernel_block_steps=3, windows=("kernels",))
    prof, hook = profiler(plan)
    with prof:
        train(prof, hook.clock, 1)
        hook.calls.clear()
        train(prof, hook.clock, 6)

    assert hook.calls.count("synchronize") == 2  # its begin was before the clear
    assert [block for _, block, *_ in prof.recording.windows[-1].table("step")] == [1, 1, 1, 2, 2, 2]


def test_peaks_that_are_not_known_are_missing_with_their_reason(monkeypatch: pytest.MonkeyPatch):
    def peaks(precisions: list[str]) -> None:
        raise UnavailableError("the peak of a fake is not known")

    prof, hook = profiler(WHOLE)
    monkeypatch.setattr(hook, "peaks", peaks)
    with prof:
        train(prof, hook.clock, 20)

    assert prof.recording.missing == {"peaks": "the peak of a fake is not known"}


def test_a_clean_window_waits_only_at_the_edges_of_blocks():
    prof, hook = profiler(Plan(warmup=1, steps=10, windows=("clean",)))
    with prof:
        train(prof, hook.clock, 1)
        hook.calls.clear()
        train(prof, hook.clock, 10)

    assert hook.calls.count("synchronize") == 5 + 4  # five ends; the first begin was before the clear
    assert not any(call.startswith("start") for call in hook.calls)


def test_warming_up_goes_on_until_the_loop_has_settled():
    prof, hook = profiler(Plan(windows=("clean",), steps=2))
    with prof:
        train(
            prof,
            hook.clock,
            30,
            lambda step: 5.0 if step == 0 else 2.0 - 0.1 * step if step < 8 else 1.2,
        )

    assert prof.recording.run.settled is True
    assert "Mann-Kendall" in prof.recording.run.settled_by
    assert 8 < windows(prof)[0][2] < 20


def test_a_loop_that_never_settles_says_so_and_is_measured_all_the_same():
    prof, hook = profiler(Plan(windows=("clean",), steps=2, max_warmup=15))
    with prof:
        train(prof, hook.clock, 17, lambda step: 1.0 + step % 2)

    assert prof.recording.run.settled is False
    assert windows(prof) == [("warmup", "complete", 15), ("clean", "complete", 2)]
    assert "NEVER SETTLED after 15 steps" in str(prof)


def test_a_loop_on_a_cpu_that_never_settles_is_let_go_after_at_most_60_steps():
    prof, hook = profiler(plan_for("cpu"))
    with prof:
        train(prof, hook.clock, 60, lambda step: 1.0 + step % 2)
        assert not prof.active

    assert prof.recording.run.settled is False
    assert prof.recording.run.complete


def test_a_warmup_of_a_given_length_is_not_judged():
    prof, hook = profiler()
    with prof:
        train(prof, hook.clock, 13)

    assert prof.recording.run.settled is None
    assert "2 steps, as asked" in prof.recording.run.settled_by


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
    assert "incomplete" in str(prof)
    assert (prof.summary.memory is not None) == (steps == 8)


def test_a_loop_that_never_steps_says_so():
    prof, _ = profiler()
    with prof:
        pass

    assert "prof.step() was never called" in prof.summary.missing["throughput"]


def test_an_exception_in_the_loop_passes_through_and_the_recording_is_kept(tmp_path: Path):
    prof, hook = profiler(path=tmp_path / "a.tbd")

    def loop() -> None:
        with prof:
            train(prof, hook.clock, 8)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        loop()

    kept = files.load(tmp_path / "a.tbd")
    assert kept.run.ended_by == "ZeroDivisionError"
    assert [window.state for window in kept.windows] == ["complete", "complete", "cut short"]
    assert hook.calls[-1] == "stop"
    assert hook.closed == 1


def test_another_profiler_costs_only_the_memory_window():
    prof, hook = profiler(hook=FakeHook(busy="another profiler is active"))
    with prof:
        train(prof, hook.clock, 10)

    assert [name for name, _, _ in windows(prof)] == ["warmup", "clean", "clean"]
    assert prof.summary.missing["memory"] == "another profiler is active"
    assert prof.recording.run.complete


def test_windows_can_be_repeated():
    prof, hook = profiler(Plan(warmup=1, steps=2, memory_steps=2, windows=MEMORY, repeat=2))
    with prof:
        train(prof, hook.clock, 13)

    assert [name for name, _, _ in windows(prof)] == ["warmup", *MEMORY * 2]
    assert prof.recording.run.complete


def test_without_a_count_of_samples_steps_are_counted():
    prof, hook = profiler()
    with prof:
        for _ in range(13):
            hook.clock.sleep(0.5)
            prof.step()

    assert prof.summary.throughput is not None
    assert prof.summary.throughput.unit == "steps"
    assert prof.summary.throughput.rate.per_s == pytest.approx(2)
    assert "throughput.samples_per_s" in prof.summary.missing


def test_the_memory_windows_cost_is_stated():
    prof, hook = profiler(hook=FakeHook(memory_step_s=0.05))
    with prof:
        train(prof, hook.clock, 13)

    cost = prof.summary.memory_overhead
    assert cost is not None
    assert cost.ratio == pytest.approx(1.5)


def test_the_file_grows_window_by_window(tmp_path: Path):
    prof, hook = profiler(path=tmp_path / "a.tbd")
    seen = []
    with prof:
        for _ in range(13):
            hook.clock.sleep(0.1)
            prof.step(1)
            seen.append(files.load(tmp_path / "a.tbd").lost_windows)

    assert seen[2] == ["clean (window 1)"]
    assert seen[7] == ["memory (window 2)"]
    assert seen[12] == []
    assert files.load(tmp_path / "a.tbd").run.complete


def test_a_file_that_can_no_longer_be_written_costs_the_file_not_the_run(tmp_path: Path):
    prof, hook = profiler(path=tmp_path / "a.tbd")
    with prof:
        train(prof, hook.clock, 3)
        prof._recorder._writer._connection.execute("DROP TABLE column_block")  # type: ignore[union-attr]
        train(prof, hook.clock, 10)

    assert prof.recording.run.complete
    assert "writing the file failed" in prof.recording.missing["file"]
    assert prof.summary.memory is not None


def test_saving_afterwards_equals_recording_meanwhile(tmp_path: Path):
    prof, hook = profiler(path=tmp_path / "a.tbd")
    with prof:
        train(prof, hook.clock, 13)
    prof.save(tmp_path / "b.tbd")

    assert str(files.load(tmp_path / "a.tbd").run) == str(files.load(tmp_path / "b.tbd").run)


def test_progress_is_told_phase_by_phase():
    hook, log = FakeHook(), ProgressLog()
    prof = Profiler(hook, run(), SHORT, progress=log, clock=hook.clock)
    with prof:
        train(prof, hook.clock, 13)

    assert [phase for phase, step, _ in log.told if step == 0] == [
        "warm-up",
        "clean",
        "memory",
        "clean",
    ]
    assert ("memory", 2, 3) in log.told


def test_a_failure_of_the_profiler_itself_ends_it_incomplete(monkeypatch: pytest.MonkeyPatch):
    prof, hook = profiler()
    prof.start()
    train(prof, hook.clock, 8)
    monkeypatch.setattr(hook, "mark_step", lambda: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        prof.step(8)
    prof.step(8)  # the loop caught it and goes on

    assert prof.recording.run.complete is False
    assert prof.recording.run.ended_by == "ZeroDivisionError"
    assert hook.closed == 1


@pytest.mark.parametrize("calls", [[8, None], [None, 8], [-1], [float("nan")], [float("inf")]])
def test_steps_with_and_without_a_count_or_with_a_senseless_one_are_refused(calls: list[float | None]):
    prof, _ = profiler()
    prof.start()
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

    assert files.load(tmp_path / "a.tbd").run.complete
    assert prof.recording.missing == {}


def test_a_window_whose_marks_were_lost_keeps_its_steps(monkeypatch: pytest.MonkeyPatch):
    prof, hook = profiler()
    monkeypatch.setattr(hook, "drain", lambda strings: Drained({}, [], {"memory": "another profiler took it"}))
    with prof:
        train(prof, hook.clock, 13)

    assert windows(prof)[2] == ("memory", "complete", 3)
    assert prof.summary.missing["memory"] == "another profiler took it"


def test_while_it_runs_the_report_says_so():
    prof, hook = profiler()
    assert prof.recording.run.ended_by == "it never started"
    with prof:
        train(prof, hook.clock, 1)
        assert prof.recording.run.ended_by == "it is still running"


def test_what_detaches_is_done_even_if_the_last_facts_cannot_be_had(monkeypatch: pytest.MonkeyPatch):
    prof, hook = profiler()
    prof.start()
    train(prof, hook.clock, 12)
    monkeypatch.setattr(hook, "facts", lambda: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        train(prof, hook.clock, 1)
    assert hook.closed == 1
