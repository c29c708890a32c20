"""Where tbdprof itself fails, the window is given up, the recording says why, and the loop goes on."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_loop import WHOLE, profiler, train, windows
from fakes import FakeHook
from make import run

from tbdprof.analysis.summary import summarize
from tbdprof.collect import Collected
from tbdprof.facts.file.reading import load
from tbdprof.facts.records import Strings
from tbdprof.hooks import Drained
from tbdprof.loop.defect import defect_line
from tbdprof.loop.instruments import Instruments
from tbdprof.loop.profiler import LoopProfiler
from tbdprof.loop.version import version
from tbdprof.report import json_report
from tbdprof.report.terminal import render

ERRORS = [KeyError("planted"), MemoryError("planted"), sqlite3.OperationalError("planted"), RuntimeError("planted")]
STEPS = 40


class Planted:
    """A hook that raises an error in one of its methods, where a window of one kind begins or while it is open.

    `synchronize` fails once: otherwise it would fail in the clean window behind it, too.
    """

    def __init__(self, hook: FakeHook, method: str, window: str, error: Exception) -> None:
        self.window, self.begun, self.called = window, "", 0
        start, planted = hook.start, getattr(hook, method)

        def begins(window: str) -> object:
            self.begun = window
            return fails(window) if method == "start" else start(window)

        def fails(*arguments: object) -> object:
            if self.begun == self.window and not (method == "synchronize" and self.called):
                self.called += 1
                raise error
            return planted(*arguments)

        hook.start = begins  # type: ignore[method-assign]
        if method != "start":
            setattr(hook, method, fails)


@pytest.mark.parametrize(
    ("method", "error"),
    [*zip(["start", "mark_step", "stop", "drain"], ERRORS, strict=True), ("synchronize", OSError("planted"))],
)
@pytest.mark.parametrize(("window", "ordinal"), [("memory", 2), ("kernels", 4)])
def test_a_window_in_which_the_hook_fails_is_given_up_and_the_others_are_whole(
    tmp_path: Path, window: str, ordinal: int, method: str, error: Exception
):
    prof, hook = profiler(WHOLE, path=tmp_path / "a.tbd")
    planted = Planted(hook, method, window, error)
    with prof:
        train(prof, hook.clock, STEPS)

    assert planted.called
    assert prof.recording.run.complete
    assert hook.closed == 1
    others = [each for each in windows(prof) if each[0] != window]
    assert all(state == "complete" for _, state, _ in others)
    kept = load(tmp_path / "a.tbd")
    for recording in (prof.recording, kept):
        assert all(not rows.size for each in recording.named(window) for rows in each.tables.values())
        (reason,) = {text for key, text in recording.missing.items() if key.startswith("given up")}
        assert reason == recording.missing[window]
        assert f"in the {window} window (window {ordinal}), which was given up: {type(error).__name__}: " in reason
        assert f"tbdprof {version()} failed" in reason
        assert reason.endswith("please report this line")
        assert f"given up (window {ordinal})" in recording.missing
        assert reason in " ".join(render(summarize(recording), width=1000).split())
    assert json_report.render(summarize(prof.recording)) == json_report.render(summarize(kept))


@pytest.mark.parametrize(("method", "error"), [*zip(["start", "stop", "drain", "close"], ERRORS, strict=True)])
def test_a_collector_that_fails_costs_itself_alone(method: str, error: Exception):
    class Failing:
        name = "fake"

        def start(self, window: str) -> None:
            self._do("start")

        def stop(self) -> None:
            self._do("stop")

        def drain(self, strings: Strings) -> Collected:
            self._do("drain")
            return Collected({})

        def close(self) -> None:
            self._do("close")

        def _do(self, what: str) -> None:
            if what == method:
                raise error

    hook = FakeHook()
    every = Instruments({name: [Failing()] for name in ("clean", "memory", "kernels")})
    prof = LoopProfiler(hook, run(), WHOLE, clock=hook.clock, instruments=every)
    with prof:
        train(prof, hook.clock, STEPS)

    assert [state for _, state, _ in windows(prof)] == ["complete"] * 6
    assert prof.recording.run.complete
    assert hook.closed == 1
    key = "given up" if method == "close" else "fake"
    assert type(error).__name__ in prof.recording.missing[key]
    assert summarize(prof.recording).memory is not None


@pytest.mark.parametrize("method", ["facts", "close", "whole_run_peak_bytes"])
def test_a_failure_at_the_end_is_a_remark_and_what_was_recorded_is_kept(tmp_path: Path, method: str):
    class Failing(FakeHook):
        broken = False

    def fails(self: Failing) -> object:
        if self.broken:
            raise KeyError("planted")
        return getattr(FakeHook, method)(self) if method != "whole_run_peak_bytes" else 240

    setattr(Failing, method, property(fails) if method == "whole_run_peak_bytes" else fails)
    hook = Failing()
    prof, _ = profiler(hook=hook, path=tmp_path / "a.tbd")
    with prof:
        train(prof, hook.clock, 12)
        hook.broken = True
        train(prof, hook.clock, 1)

    kept = load(tmp_path / "a.tbd")
    assert "KeyError: 'planted'" in kept.missing["given up"]
    assert kept.run.complete
    assert summarize(kept).memory is not None


@pytest.mark.parametrize("error", [KeyError("planted"), MemoryError("planted"), OSError(28, "planted")])
@pytest.mark.parametrize("method", ["append", "write_state", "close"])
def test_a_file_that_fails_in_any_way_costs_no_step(tmp_path: Path, method: str, error: Exception):
    prof, hook = profiler(path=tmp_path / "a.tbd")
    with prof:
        train(prof, hook.clock, 4)
        file = prof._recorder._file

        def fails(*arguments: object) -> None:
            raise error

        setattr(file, method, fails)
        train(prof, hook.clock, 20)

    assert not prof.active
    assert hook.closed == 1
    assert "planted" in str(prof.recording.missing)


@pytest.mark.parametrize("ends", [KeyboardInterrupt("the user's"), SystemExit(3)])
def test_an_interrupt_in_a_window_passes_and_the_window_is_kept(ends: BaseException, monkeypatch: pytest.MonkeyPatch):
    prof, hook = profiler()
    mark = hook.mark_step

    def interrupted() -> None:
        mark()
        if hook.calls.count("marked"):
            raise ends
        hook.calls.append("marked")

    monkeypatch.setattr(hook, "mark_step", interrupted)
    with pytest.raises(type(ends)) as ended, prof:
        train(prof, hook.clock, 20)

    assert ended.value is ends
    assert windows(prof)[-1] == ("memory", "cut short", 1)
    assert prof.recording.missing == {}
    assert hook.closed == 1


@pytest.mark.parametrize("steps", [1, 4, 8, 12])
def test_the_loops_own_error_is_the_same_object_though_tbdprof_fails_too(steps: int, monkeypatch: pytest.MonkeyPatch):
    prof, hook = profiler()
    mine = ValueError("the user's")

    def fails(*arguments: object) -> Drained:
        raise KeyError("planted")

    def loop() -> None:
        with prof:
            train(prof, hook.clock, steps)
            for method in ("stop", "drain", "facts", "close", "synchronize"):
                monkeypatch.setattr(hook, method, fails)
            raise mine

    with pytest.raises(ValueError, match="the user's") as ended:
        loop()

    assert ended.value is mine
    assert ended.traceback[-1].path == Path(__file__)
    assert mine.__context__ is None
    assert mine.__cause__ is None
    assert "KeyError" in str(prof.recording.missing)


def of_torch(message: str) -> None:
    """Raise an error as torch's own code does."""
    code = compile("def synchronize(message): raise RuntimeError(message)", "torch/cuda/__init__.py", "exec")
    names: dict[str, Callable[[str], None]] = {"__name__": "torch.cuda"}  # type: ignore[dict-item]
    exec(code, names)
    names["synchronize"](message)


def test_what_the_framework_raises_while_the_device_is_waited_for_is_the_loops(monkeypatch: pytest.MonkeyPatch):
    prof, hook = profiler()
    prof.start()
    train(prof, hook.clock, 4)
    monkeypatch.setattr(hook, "synchronize", lambda: of_torch("device-side assert"))
    with pytest.raises(RuntimeError, match="device-side assert"):
        train(prof, hook.clock, 10)

    assert prof.recording.run.ended_by == "RuntimeError"
    assert "given up" not in str(prof.recording.missing)
    assert hook.closed == 1


def test_the_line_to_report_is_one_line_of_bounded_length_and_names_the_place():
    class SilentError(Exception):
        def __str__(self) -> str:
            raise ValueError

    def line(error: Exception) -> str:
        with pytest.raises(type(error)) as raised:
            raise error
        return defect_line("in a test", raised.value)

    assert f"failed in a test: KeyError: 'x' ({__name__}:" in line(KeyError("x"))
    assert "SilentError" in line(SilentError())
    assert "MemoryError (" in line(MemoryError())
    for text in ("a\x1b[31mb\nsecond", "x" * 100_000, "\ud800"):
        said = line(ValueError(text))
        assert said.isprintable()
        assert len(said) < 500
