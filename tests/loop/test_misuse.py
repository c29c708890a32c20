"""What a loop does wrong with its profiler is refused at the call, in one line, or is right."""

import gc
import os
import signal
import threading
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from fake_loop import SHORT, profiler, train, windows
from fakes import FakeHook

from tbdprof.analysis.summary import summarize
from tbdprof.errors import UsageError
from tbdprof.facts.consumed import Consumed
from tbdprof.facts.file.reading import load
from tbdprof.loop.profiler import LoopProfiler
from tbdprof.report.terminal import render


class Tensor:
    """A tensor of no dimension; to read one of another device is a mistake."""

    shape = ()

    def __init__(self, device: str) -> None:
        self.device = device

    def __float__(self) -> float:
        assert self.device == "cpu"
        return 8.0


class Queued(Tensor):
    """One whose engine computes it later, on the CPU too."""


Queued.__module__ = "mxnet.ndarray.ndarray"


class Strange:
    """Raises something of its own where it is read."""

    def __float__(self) -> float:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    "units",
    [8, 8.0, np.int64(8), np.float32(8), np.array(8), np.uint8(8), Fraction(8), Decimal(8), Tensor("cpu"), Consumed(8)],
)
def test_any_number_counts_as_units(units: float):
    prof, _ = profiler()
    with prof:
        prof.step(units)

        assert prof._course is not None
    assert prof.recording.windows[0].table("step")["units"].tolist() == [8.0]


@pytest.mark.parametrize(
    "units",
    [
        *(-1, float("nan"), float("inf"), 1e308, 10**400, 10**5000, -(10**400), 2**54),
        *(True, np.bool_(True), "8", b"8", "x" * 10**6, np.str_("8"), 8j, np.complex128(8), np.timedelta64(8, "s")),
        *([8], (8,), {}, {8}, None.__class__, object(), Strange(), Decimal("NaN")),
        *(np.array([8]), np.array("8"), np.array(True)),
        *(Tensor("cuda:0"), Queued("cpu"), Consumed("8"), Consumed(8, also=None), Consumed(8, also={7: 1})),
        *(Consumed(8, also={"a": "b"}), Consumed(8, padding=[8]), Consumed(8, lengths={"a": 1e308}), Consumed(None)),
    ],
    ids=lambda units: type(units).__name__,
)
def test_what_is_no_number_is_refused_in_one_line_and_the_loop_may_go_on(units: object):
    prof, hook = profiler()
    with prof:
        with pytest.raises(UsageError, match=r"^prof\.step\(.*give every step the samples") as refused:
            prof.step(units)  # type: ignore[arg-type]
        train(prof, hook.clock, 13)

    assert len(str(refused.value)) < 250
    assert prof.recording.run.complete


def test_a_step_before_the_loop_is_refused_and_one_after_it_is_nothing():
    prof, hook = profiler()
    with pytest.raises(UsageError, match="before the loop began"):
        prof.step(8)
    prof.stop()
    with prof:
        train(prof, hook.clock, 13)
    prof.step(8)
    prof.step("nonsense")  # type: ignore[arg-type]

    assert prof.recording.run.complete


def test_a_second_profiler_is_refused_while_one_records_in_any_thread_and_may_begin_afterwards():
    first, hook = profiler()
    second, other = profiler()
    refused = list[BaseException]()

    def begin() -> None:
        try:
            second.start()
        except UsageError as error:
            refused.append(error)

    with first:
        with pytest.raises(UsageError, match="another tbdprof profiler is recording in this process"):
            profiler()[0].start()
        thread = threading.Thread(target=begin)
        thread.start()
        thread.join()
        train(first, hook.clock, 13)

        assert len(refused) == 1
        assert other.calls == []
        with second:
            train(second, other.clock, 13)

    assert first.recording.run.complete
    assert second.recording.run.complete


def test_of_many_threads_that_begin_at_once_one_records():
    barrier, begun, refused = threading.Barrier(8), list[LoopProfiler](), list[UsageError]()

    def begin() -> None:
        prof, _ = profiler()
        barrier.wait()
        try:
            prof.start()
        except UsageError as error:
            refused.append(error)
        else:
            begun.append(prof)

    threads = [threading.Thread(target=begin) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for prof in begun:
        prof.stop()

    assert (len(begun), len(refused)) == (1, 7)


def test_a_profiler_that_was_forgotten_hinders_no_other():
    forgotten, _ = profiler()
    forgotten.start()
    del forgotten
    gc.collect()

    with profiler()[0]:
        pass


def test_entering_twice_is_refused_and_the_loop_goes_on():
    prof, hook = profiler()
    with prof:
        with pytest.raises(UsageError, match="used already"), prof:
            pass
        assert hook.closed == 0
        train(prof, hook.clock, 13)

    assert prof.recording.run.complete


def test_of_several_threads_that_step_at_once_one_is_recorded_and_the_others_are_refused():
    prof, hook = profiler(SHORT)
    barrier, refused = threading.Barrier(4), list[UsageError]()

    def loop() -> None:
        barrier.wait()
        try:
            for _ in range(13):
                prof.step(8)
        except UsageError as error:
            refused.append(error)
        barrier.wait()  # each thread lives until the last step

    with prof:
        threads = [threading.Thread(target=loop) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert {str(error) for error in refused} <= {
        "prof.step() in a second thread: let one thread report the steps of all"
    }
    assert windows(prof) == [
        ("warmup", "complete", 2),
        ("clean", "complete", 4),
        ("memory", "complete", 3),
        ("clean", "complete", 4),
    ]
    assert hook.closed == 1


def test_a_second_thread_is_refused_while_the_first_lives_and_may_go_on_when_that_has_ended():
    prof, hook = profiler(SHORT)
    with prof:
        thread = threading.Thread(target=train, args=(prof, hook.clock, 3))
        thread.start()
        thread.join()
        train(prof, hook.clock, 3)
        refused = list[UsageError]()

        def second() -> None:
            try:
                prof.step(8)
            except UsageError as error:
                refused.append(error)

        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
        train(prof, hook.clock, 7)

    assert len(refused) == 1
    assert prof.recording.run.complete
    assert sum(steps for _, _, steps in windows(prof)) == 13


def in_a_step(act: Callable[[LoopProfiler], object], monkeypatch: pytest.MonkeyPatch) -> tuple[LoopProfiler, FakeHook]:
    """Return a profiler in whose memory window a signal comes while it takes a step; the handler does something."""
    prof, hook = profiler()
    marked = hook.mark_step

    def interrupted() -> None:
        marked()
        os.kill(os.getpid(), signal.SIGUSR1)

    monkeypatch.setattr(hook, "mark_step", interrupted)
    signal.signal(signal.SIGUSR1, lambda *_: act(prof))
    return prof, hook


@pytest.fixture
def _handler():
    before = signal.getsignal(signal.SIGUSR1)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.usefixtures("_handler")
def test_a_handler_may_stop_the_profiler_and_what_it_raises_is_the_users(monkeypatch: pytest.MonkeyPatch):
    prof, hook = in_a_step(lambda prof: prof.stop("SIGUSR1"), monkeypatch)
    with prof:
        train(prof, hook.clock, 13)
    assert windows(prof)[-1] == ("memory", "cut short", 1)
    assert prof.recording.run.ended_by == "SIGUSR1"

    late = TimeoutError("the user's")

    def raises(prof: LoopProfiler) -> None:
        raise late

    prof, hook = in_a_step(raises, monkeypatch)
    with pytest.raises(TimeoutError) as ended, prof:
        train(prof, hook.clock, 13)
    assert ended.value is late
    assert prof.recording.missing == {}
    assert prof.recording.run.ended_by == "TimeoutError"

    prof, hook = in_a_step(lambda prof: prof.step(8), monkeypatch)
    with pytest.raises(UsageError, match=r"step\(\) within prof\.step"), prof:
        train(prof, hook.clock, 13)


def test_a_forked_child_in_a_window_leaves_the_recording_alone_and_may_begin_its_own():
    prof, hook = profiler()
    with prof:
        train(prof, hook.clock, 8)
        child = os.fork()
        if not child:
            code = 1
            try:
                prof.step("nonsense")  # type: ignore[arg-type]
                prof.stop()
                prof.__exit__(None, None, None)
                own, of_child = profiler()
                with own:
                    train(own, of_child.clock, 13)
                code = 0 if own.recording.run.complete and hook.closed == 0 and not prof.active else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        train(prof, hook.clock, 5)

    assert prof.recording.run.complete


def test_a_name_that_is_no_unicode_costs_nothing(tmp_path: Path):
    prof, hook = profiler(path=tmp_path / "a.tbd")
    with prof:
        for _ in range(13):
            hook.clock.sleep(0.1)
            prof.step(Consumed(8, also={"tok\udcff": 512, "a\x1bb": 1}))

    assert prof.recording.missing == {}
    kept = load(tmp_path / "a.tbd")
    assert kept.run.complete
    names = {other.unit for other in summarize(kept).throughput.others}  # type: ignore[union-attr]
    assert names == {"tok\\udcff", "a\x1bb"}
    assert r"tok\udcff/s" in render(summarize(kept), width=1000)
    assert r"a\x1bb/s" in render(summarize(kept), width=1000)
