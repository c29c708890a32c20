"""The windows of a run, one after another, on a loop of a fake framework."""

import math
from collections import Counter
from dataclasses import replace

import pytest
from fake_loop import MEMORY, SHORT, WHOLE, profiler, train, windows
from fakes import FakeHook, ProgressLog
from make import run

from tbdprof.analysis.summary import summarize
from tbdprof.errors import UsageError
from tbdprof.facts.consumed import Consumed
from tbdprof.facts.keys import RemarkOn
from tbdprof.hooks import Drained, Facts
from tbdprof.loop.plan import LEAST_STEPS, WINDOW_S, Plan, Schedule, plan_for, together
from tbdprof.loop.profiler import LoopProfiler
from tbdprof.report.terminal import render


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
    assert summarize(prof.recording).throughput is not None
    assert summarize(prof.recording).throughput.rate.per_s == pytest.approx(80)
    assert summarize(prof.recording).missing_now == {}


@pytest.mark.parametrize("ahead", [False, True])
def test_whether_a_framework_runs_ahead_is_recorded(ahead: bool):
    class Hook(FakeHook):
        def facts(self) -> Facts:
            return replace(super().facts(), runs_ahead=ahead)

    hook = Hook()
    with LoopProfiler(hook, run(), SHORT, clock=hook.clock) as prof:
        train(prof, hook.clock, 1)

    assert prof.recording.run.runs_ahead is ahead


def test_a_kernels_window_waits_only_at_the_ends_of_its_blocks():
    plan = Plan(warmup=1, kernel_steps=6, kernel_block_steps=3, windows=("kernels",))
    prof, hook = profiler(plan)
    with prof:
        train(prof, hook.clock, 1)
        hook.calls.clear()
        train(prof, hook.clock, 6)

    assert hook.calls.count("synchronize") == 2  # its begin was before the clear
    assert [block for _, block, *_ in prof.recording.windows[-1].table("step")] == [1, 1, 1, 2, 2, 2]


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
    assert "NEVER SETTLED after 15 steps" in render(summarize(prof.recording))


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


def test_another_profiler_costs_only_the_memory_window():
    prof, hook = profiler(hook=FakeHook(busy="another profiler is active"))
    with prof:
        train(prof, hook.clock, 10)

    assert [name for name, _, _ in windows(prof)] == ["warmup", "clean", "clean"]
    assert summarize(prof.recording).missing["memory"] == "another profiler is active"
    assert prof.recording.run.complete


def test_windows_can_be_repeated():
    prof, hook = profiler(Plan(warmup=1, steps=2, memory_steps=2, windows=MEMORY, repeat=2))
    with prof:
        train(prof, hook.clock, 13)

    assert [name for name, _, _ in windows(prof)] == ["warmup", *MEMORY * 2]
    assert prof.recording.run.complete


def test_with_others_each_window_has_its_steps_by_count_and_one_between_is_in_none():
    prof, hook = profiler(together(Plan(steps=2, clean_s=99.0, memory_steps=2, kernel_steps=2)))
    with prof:
        train(prof, hook.clock, 40)

    taken = [window.table("step")["index"].tolist() for window in prof.recording.windows]
    assert taken == [[*range(12)], [12, 13], [14, 15], [17, 18], [19, 20], [22, 23]]
    assert prof.recording.run.settled_by == "12 steps, the same in all processes"
    assert (prof.recording.run.settled, prof.recording.run.complete) == (None, True)


@pytest.mark.parametrize(
    ("device", "given", "warmup"),
    [
        ("cpu", Schedule(), 12),
        ("cuda:0", Schedule(), 192),
        ("cpu", Schedule(warmup=0), 0),
        ("cpu", Schedule(max_warmup=5), 5),
    ],
)
def test_with_others_no_clock_decides_and_the_warm_up_has_a_fixed_number_of_steps(
    device: str, given: Schedule, warmup: int
):
    plan = together(plan_for(device, given))

    assert (plan.warmup, plan.clean_s) == (warmup, 0.0)


def test_progress_is_reported_phase_by_phase():
    hook, log = FakeHook(), ProgressLog()
    prof = LoopProfiler(hook, run(), SHORT, progress=log, clock=hook.clock)
    with prof:
        train(prof, hook.clock, 13)

    assert [phase for phase, step, _ in log.reported if step == 0] == [
        "warm-up",
        "clean",
        "memory",
        "clean",
    ]
    assert ("memory", 2, 3) in log.reported


def test_a_window_whose_marks_were_lost_keeps_its_steps(monkeypatch: pytest.MonkeyPatch):
    prof, hook = profiler()
    monkeypatch.setattr(hook, "drain", lambda strings: Drained({}, [], {"memory": "another profiler took it"}))
    with prof:
        train(prof, hook.clock, 13)

    assert windows(prof)[2] == ("memory", "complete", 3)
    assert summarize(prof.recording).missing["memory"] == "another profiler took it"


@pytest.mark.parametrize("period", [2, 3, 4])
def test_every_block_and_window_holds_whole_periods_of_the_data(period: int):
    plan = plan_for("cpu", period=period)
    prof, hook = profiler(plan)
    with prof:
        train(prof, hook.clock, 400, lambda step: 0.1 * (1 + step % period))  # a step's time follows its data

    assert prof.recording.run.settled is True
    clean = prof.recording.named("clean")[0].table("step")
    assert len(clean) == math.ceil(10 / period) * period
    assert set(Counter(clean["block"].tolist()).values()) == {period}
    for name in ("memory", "kernels"):
        (window,) = prof.recording.named(name)
        assert (len(window.table("step")) - 1) % period == 0  # the first one settles
    assert summarize(prof.recording).throughput is not None
    assert summarize(prof.recording).throughput.drifted is False


def test_the_loops_own_threads_pause_at_the_edges_of_watched_windows_and_where_owners_are_read():
    hook = FakeHook()
    prof = LoopProfiler(hook, run(), WHOLE, clock=hook.clock, pause=lambda: hook.calls.append("pause"))
    with prof:
        train(prof, hook.clock, 30)

    calls = [call for call in hook.calls if call != "synchronize"]
    for name in ("memory", "kernels"):
        begun = calls.index(f"start {name}")
        assert calls[begun - 1] == "pause"
        assert calls[calls.index("stop", begun) - 1] == "pause"
    assert calls.count("pause") == 4 + 3  # the edges of two windows, and the ends of the memory window's steps


def test_a_window_is_closed_where_a_thread_of_the_loop_failed():
    def fail() -> None:
        hook.calls.append("pause")
        if hook.calls.count("pause") == 2:
            raise ZeroDivisionError

    hook = FakeHook()
    prof = LoopProfiler(hook, run(), SHORT, clock=hook.clock, pause=fail)
    with pytest.raises(ZeroDivisionError), prof:
        train(prof, hook.clock, 30)

    assert hook.calls.count("stop") == 1
    assert windows(prof)[-1][0] == "memory"
    assert prof.recording.run.ended_by == "ZeroDivisionError"


@pytest.mark.parametrize("wrong", [Consumed(-1), Consumed(1, also={"tokens": float("nan")}), Consumed(float("inf"))])
def test_a_step_that_consumed_no_number_is_refused(wrong: Consumed):
    prof, _ = profiler(SHORT)
    with prof, pytest.raises(UsageError, match="0 or more"):
        prof.step(wrong)


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_watched_windows_are_as_long_as_a_loop_of_several_threads_needs(device: str):
    usual, longer = plan_for(device), plan_for(device, watched_steps=48)

    assert usual.watched("memory") == (4, 1)
    assert longer.watched("memory") == (1 + 48, 1)
    steps, block = longer.watched("kernels")
    assert steps == block + 48


@pytest.mark.parametrize(
    ("step_s", "period", "steps"),
    [(0.9, 1, 10), (1.6, 1, 6), (3.0, 1, 4), (60.0, 1, 4), (0.5, 4, 12), (60.0, 4, 12), (60.0, 2, 6)],
)
def test_a_clean_window_of_a_cpu_has_fewer_steps_where_they_take_long(step_s: float, period: int, steps: int):
    plan = plan_for("cpu", period=period).fitted(step_s)

    assert plan.steps == steps
    assert plan.windows.count("clean") * plan.steps >= 10
    assert plan.steps * step_s <= WINDOW_S or plan.steps == max(LEAST_STEPS, 3 * period * (period > 1))


@pytest.mark.parametrize(
    ("device", "step_s", "steps", "block"),
    [
        ("cpu", 0.1, 10, 2),
        ("cpu", 0.02, 15, 3),
        ("cpu", 0.005, 50, 10),
        ("cpu", 0.0, 50, 10),
        ("cuda:0", 0.005, 50, 10),
        ("cuda:0", 0.001, 250, 50),
        ("cuda:0", 0.0001, 1000, 200),
    ],
)
def test_a_clean_window_has_more_short_steps(device: str, step_s: float, steps: int, block: int):
    plan = plan_for(device).fitted(step_s)

    assert (plan.steps, plan.block_steps) == (steps, block)
    assert dict(plan.outline)["clean"] == steps


def test_what_is_asked_for_and_ranks_have_no_more_short_steps():
    assert plan_for("cpu", Schedule(steps=10)).fitted(0.001).steps == 10
    assert plan_for("cuda:0", Schedule(steps=10)).fitted(0.001).steps == 10
    assert together(plan_for("cpu")).fitted(0.001).steps == 10


def test_what_is_asked_for_a_gpu_and_ranks_have_all_their_steps():
    assert plan_for("cpu", Schedule(steps=10)).fitted(60.0).steps == 10
    assert plan_for("cuda:0").fitted(60.0).steps == 50
    assert together(plan_for("cpu")).fitted(60.0).steps == 10


@pytest.mark.parametrize("settles", [True, False])
def test_a_run_of_slow_steps_ends_early_and_says_so(settles: bool):
    prof, hook = profiler(plan_for("cpu"))
    with prof:
        train(prof, hook.clock, 60, lambda step: 3.0 if settles or step % 2 else 6.0)

    run, recorded = prof.recording.run, windows(prof)
    assert run.complete
    assert run.settled is settles
    assert recorded[0] == ("warmup", "complete", 6 if settles else 7)  # 30 s: the end of the seventh step
    assert [(name, steps) for name, _, steps in recorded[1:]] == [
        *[("clean", 4), ("memory", 4), ("clean", 4), ("kernels", 4), ("clean", 4)]
    ]
    remark = prof.recording.missing[RemarkOn.CLEAN_STEPS]
    assert "a clean window has 4 steps and not 10; ask for 10 steps to have them all" in remark
    assert remark in " ".join(render(summarize(prof.recording)).split())


class Ahead(FakeHook):
    """A framework that returns from a step before the device has finished it."""

    done_ns = 0

    def synchronize(self) -> None:
        super().synchronize()
        self.clock.now_ns = max(self.clock.now_ns, self.done_ns)


def test_the_warm_up_is_judged_by_finished_steps_where_a_framework_runs_ahead():
    hook = Ahead()
    with LoopProfiler(hook, run(), plan_for("cpu"), clock=hook.clock) as prof:
        while prof.active:
            hook.clock.sleep(0.05)
            hook.done_ns = max(hook.done_ns, hook.clock.now_ns) + round(3e9)
            prof.step(8)

    assert prof.recording.run.settled
    assert "a step takes 3.0 s" in prof.recording.missing[RemarkOn.CLEAN_STEPS]
    assert [steps for name, _, steps in windows(prof) if name == "clean"] == [4, 4, 4]


def test_a_run_of_fast_steps_says_nothing_of_its_plan():
    prof, hook = profiler(plan_for("cpu"))
    with prof:
        train(prof, hook.clock, 60)

    assert RemarkOn.CLEAN_STEPS not in prof.recording.missing
    assert [steps for name, _, steps in windows(prof) if name == "clean"] == [10, 10, 10]
