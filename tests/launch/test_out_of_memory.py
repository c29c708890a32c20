"""Loops and runs that end out of memory: what is kept of them, and the batch that is found to fit."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import FakeClock, FakeHook, ProgressLog

import tbdprof
from tbdprof.analysis.summary import summarize
from tbdprof.collect.gpu import context
from tbdprof.errors import DeviceMemoryError, UnavailableError
from tbdprof.facts.file.placing import claim, save
from tbdprof.facts.file.reading import load
from tbdprof.facts.recorder import Recorder
from tbdprof.facts.recording import Recording
from tbdprof.facts.records import Run
from tbdprof.facts.windows import OUT_OF_MEMORY
from tbdprof.launch import batch_search, batch_trial, suite_run
from tbdprof.launch.batch_search import Fit, Trial, search
from tbdprof.launch.prepared import SMALLER
from tbdprof.launch.request import RunRequest
from tbdprof.loop import post_mortem
from tbdprof.loop.plan import NO_STEPS, Plan, silent
from tbdprof.loop.profiler import LoopProfiler
from tbdprof.suite.workload import Config

ROOM = 1000


class Machine:
    """Room for 1000 bytes; a batch takes 100 and 10 for each of its samples, or what else it is set to take."""

    def __init__(self, took: Callable[[int], float] = lambda size: 100 + 10 * size, seconds: float = 0.0) -> None:
        self.clock = FakeClock()
        self.took = took
        self.seconds = seconds
        self.tried: list[int] = []

    def __call__(self, size: int) -> Trial:
        self.tried.append(size)
        self.clock.sleep(self.seconds)
        took = round(self.took(size))
        return Trial(took if took <= ROOM else None, ROOM)

    def search(self, failed: int, limit_s: float = 100.0) -> Fit:
        return search(failed, self, lambda: self.clock() / 1e9, limit_s)


def test_the_largest_batch_on_the_line_below_the_room_less_a_margin_is_tried() -> None:
    machine = Machine()
    fit = machine.search(160)

    # 3 % of 1000 are left: 870 / 10.
    assert machine.tried == [20, 40, 87]
    assert fit == Fit(87, {20: 300, 40: 500, 87: 970}, ROOM)


def test_a_batch_that_does_not_fit_as_forecast_is_halved_and_the_middle_is_tried() -> None:
    machine = Machine(lambda size: 100 + 10 * size + (500 if size > 80 else 0))

    assert machine.search(160).batch_size == 65
    assert machine.tried == [20, 40, 87, 43, 65], "no more: each is a training in a process of its own"


def test_where_small_batches_forecast_too_much_half_of_it_gives_the_next_line() -> None:
    """What a sample takes is hidden in what any batch takes, until that is less."""
    machine = Machine(lambda size: max(300 + size, 14 * size))

    # 16: 316 and 32: 448 forecast 32 + 522 / 8.25 = 95; half of it, 47: 658, forecasts 47 + 312 / 14 = 69.
    assert machine.search(128) == Fit(69, {16: 316, 32: 448, 47: 658, 69: 966}, ROOM)
    assert machine.tried == [16, 32, 95, 47, 69]


def test_a_line_that_forecasts_what_failed_is_not_followed() -> None:
    machine = Machine(lambda size: max(300 + size, 65 * size))

    # 2 and 4 forecast far more than the 16 that failed.
    assert machine.search(16) == Fit(14, {2: 302, 4: 304, 8: 520, 12: 780, 14: 910}, ROOM)
    assert machine.tried == [2, 4, 8, 12, 14]


def test_where_one_batch_alone_fits_those_up_to_the_next_are_tried() -> None:
    machine = Machine(lambda size: 100 + 10 * size + (900 if size > 60 else 0))

    assert machine.search(280).batch_size == 56
    assert machine.tried == [35, 70, 52, 61, 56]


def test_where_the_first_trials_do_not_fit_smaller_ones_are_made() -> None:
    machine = Machine(lambda size: 300 * size)

    assert machine.search(64) == Fit(3, {2: 600, 3: 900}, ROOM)
    assert machine.tried == [8, 2, 4, 3]


@pytest.mark.parametrize(("failed", "tried", "fits"), [(1, [], None), (2, [1], 1), (3, [1, 2], 2), (5, [1, 2, 4], 4)])
def test_small_batches_have_few_below_them(failed: int, tried: list[int], fits: int | None) -> None:
    machine = Machine()
    fit = machine.search(failed)

    assert (machine.tried, fit.batch_size) == (tried, fits)
    assert (fit.reason is None) == (fits is not None)


def test_nothing_fits_where_not_even_one_sample_does() -> None:
    machine = Machine(lambda size: 2000)

    assert machine.search(64) == Fit(None, {}, ROOM, "no batch that was tried fits")
    assert machine.tried == [8, 2, 1]


def test_what_does_not_grow_with_the_batch_forecasts_nothing() -> None:
    """TensorFlow takes all of a GPU whatever it needs."""
    machine = Machine(lambda size: 900)

    assert machine.search(64).batch_size == 16
    assert machine.tried == [8, 16]


def test_trials_end_with_their_time_and_what_was_found_stands() -> None:
    assert Machine(seconds=60).search(160, limit_s=100).batch_size == 40
    assert Machine(seconds=200).search(160, limit_s=100).batch_size == 20


def test_a_trial_that_fails_otherwise_is_the_reason() -> None:
    def broken(size: int) -> Trial:
        raise UnavailableError("the process died")

    assert search(64, broken).reason == "the process died"


def test_what_was_found_is_kept_in_the_recording(tmp_path: Path) -> None:
    path = tmp_path / "a.tbd"
    save(Recording(Run("toy", "torch", asked_for="8 bytes")), path)

    batch_search.keep(Fit(5, {2: 300, 5: 600}, 700), path)
    kept = load(path).run
    assert (kept.fitting_batch, kept.batch_peaks, kept.batch_room_bytes) == (5, {"2": 300, "5": 600}, 700)
    batch_search.keep(Fit(None, {}, None, "no time"), path)
    assert load(path).missing["post_mortem.fitting_batch"] == "no time"
    assert [file.name for file in tmp_path.iterdir()] == ["a.tbd"]


def profiled(hook: FakeHook, failure: BaseException, steps: int) -> Recording:
    profiler = LoopProfiler(hook, Run("toy", "torch"), Plan(warmup=1, windows=("memory",)), clock=hook.clock)

    def train() -> None:
        with profiler:
            for _ in range(steps):
                profiler.step(1)
            raise failure

    with pytest.raises(type(failure)) as raised:
        train()
    assert raised.value is failure
    return profiler.recording


@pytest.mark.parametrize(("steps", "names"), [(0, ["warmup"]), (2, ["warmup", "memory"])])
def test_what_is_in_memory_where_a_loop_ends_is_a_window_of_its_own(steps: int, names: list[str]) -> None:
    recording = profiled(FakeHook(), MemoryError("8 bytes"), steps)

    assert [window.name for window in recording.windows] == [*names, OUT_OF_MEMORY]
    assert (recording.run.asked_for, recording.run.ended_by) == ("8 bytes", "MemoryError")
    last = recording.windows[-1]
    assert (last.state, len(last.table("step")), len(last.table("allocation"))) == ("complete", 0, 1)
    ending = summarize(recording).post_mortem
    assert ending is not None
    assert ending.separated == (steps == 2)


def test_another_error_leaves_no_such_window() -> None:
    recording = profiled(FakeHook(), ValueError("8 bytes"), 0)

    assert [window.name for window in recording.windows] == ["warmup"]
    assert summarize(recording).post_mortem is None


@pytest.mark.parametrize("problem", [RuntimeError("the device is gone\nmore"), MemoryError()])
def test_what_cannot_be_read_of_a_failed_process_changes_nothing_for_the_loop(problem: Exception) -> None:
    class Broken(FakeHook):
        def start(self, window: str) -> None:
            raise problem

    recording = profiled(Broken(), MemoryError("8 bytes"), 0)

    assert recording.missing["post_mortem.live"] == (str(problem).partition("\n")[0] or "MemoryError")
    assert summarize(recording).post_mortem is not None


class Exhausted(Exception):  # noqa: N818
    """As TensorFlow's, which derives from Exception alone."""


class Running(FakeHook):
    """Runs out of memory in a class of its own, wherever it is asked to begin a window."""

    def start(self, window: str) -> None:
        raise Exhausted("4 bytes")

    def out_of_memory(self, error: BaseException) -> str | None:
        return str(error) if isinstance(error, Exhausted) else super().out_of_memory(error)


def test_a_framework_that_runs_out_of_memory_once_more_leaves_the_loops_error_as_it_is() -> None:
    recording = profiled(Running(), Exhausted("8 bytes"), 0)

    assert recording.run.asked_for == "8 bytes"
    assert recording.missing["post_mortem.live"] == "4 bytes"


def test_a_trial_under_a_framework_with_classes_of_its_own_says_that_it_does_not_fit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def train(hook: object, order: object) -> None:
        raise Exhausted("8 bytes")

    monkeypatch.setattr(batch_trial, "_train", train)
    monkeypatch.setattr(batch_trial, "load", lambda framework: Running())
    batch_trial.main(RunRequest("toy", "tensorflow", "cpu", threads=1).to_json())

    assert json.loads(capsys.readouterr().out)["took_bytes"] is None


def test_an_error_that_is_none_records_nothing() -> None:
    recorder = Recorder(Run("toy", "torch"), None)
    post_mortem.record(None, FakeHook(), recorder)

    assert recorder.recording.windows == []


def lose(path: str) -> None:
    """Train a loop of one's own until it fails; in a process in which nobody else has tensors."""
    import torch

    LoopProfiler.find_peaks = lambda profiler: None  # type: ignore[method-assign]
    model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(4)])
    trainer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    profiling = tbdprof.profile(model, trainer, warmup=1, steps=1, output=path)

    def train() -> None:
        with profiling as prof:
            for size in (64, 64, 1 << 42):
                trainer.zero_grad()
                model(torch.ones(size, 256)).sum().backward()
                trainer.step()
                prof.step(size)

    with pytest.raises(RuntimeError, match="can't allocate memory"):
        train()
    assert str(profiling).splitlines()[0] == "out of memory"


def test_a_loop_of_ones_own_gets_its_error_and_keeps_what_there_was(tmp_path: Path) -> None:
    here, tests = Path(__file__).parent, Path(__file__).parents[1]
    code = f"import test_out_of_memory; test_out_of_memory.lose({str(tmp_path / 'a.tbd')!r})"
    paths = {"PYTHONPATH": os.pathsep.join(map(str, (here, tests / "support", tests.parent)))}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120, env={**os.environ, **paths})
    kept = load(tmp_path / "a.tbd")
    assert (kept.windows[-1].name, kept.windows[-1].state) == (OUT_OF_MEMORY, "complete")
    ending = summarize(kept).post_mortem
    assert ending is not None
    assert ending.live is not None
    # Four layers of 256 × 256 and a bias, and their momentum.
    assert ending.live["weights"] == ending.live["dynamic"] == 4 * 257 * 256 * 4
    assert ending.asked_bytes == (1 << 42) * 256 * 4
    assert (kept.run.ended_by, ending.batch_size) == ("RuntimeError", 64)


@pytest.mark.parametrize(
    ("device", "there", "asked"),
    [("cpu", True, []), ("auto", False, []), ("auto", True, [0]), ("cuda", True, [0]), ("cuda:2", True, [2])],
)
def test_what_lies_beneath_is_measured_before_a_run_where_there_is_a_driver(
    monkeypatch: pytest.MonkeyPatch, device: str, there: bool, asked: list[int]
) -> None:
    measured: list[int] = []
    log = ProgressLog()
    monkeypatch.setattr(context, "has_driver", lambda: there)
    monkeypatch.setattr(context, "measure", lambda index, framework, module: measured.append(index) or context.Taken())

    found = suite_run._beneath(RunRequest("toy", "torch", device=device), log)
    assert (measured, found is None) == (asked, not asked)
    assert log.reported == [("measure what a context takes of the GPU", 0, NO_STEPS)] * len(asked)


def test_a_process_that_cannot_let_go_of_its_memory_makes_no_trial(tmp_path: Path) -> None:
    error = DeviceMemoryError(f"out of memory (8 bytes): {SMALLER}")
    error.keeps = "it keeps all"
    path = tmp_path / "a.tbd"
    with claim(path, force=False) as claimed:
        pass
    save(Recording(Run("toy", "torch", asked_for="8 bytes")), path)

    returned = suite_run._with_a_batch(error, RunRequest("toy", "torch"), Config(64), claimed, silent)
    assert str(returned) == str(error)
    assert load(path).missing["post_mortem.fitting_batch"] == "it keeps all"
