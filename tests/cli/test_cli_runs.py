"""Runs of the command line that end as nobody wished: what had ended is kept, and one line says what happened.

What is trained is small, and something happens amid its step of a number.
"""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import toy as models

from tbdprof.facts.file.placing import save
from tbdprof.facts.file.reading import load
from tbdprof.facts.recording import Recording
from tbdprof.facts.records import Role, Run
from tbdprof.launch import batch_search, batch_trial
from tbdprof.launch.batch_search import Trial
from tbdprof.launch.request import RunRequest
from tbdprof.loop.profiler import LoopProfiler

ROOT = Path(__file__).parents[2]
RUN = ["run", "toy", "--batch-size", "64", "--threads", "1", "--warmup", "2", "--steps", "2", "-q", "-o", "a.tbd"]
WINDOWS = ["warmup", "clean", "memory", "clean", "kernels", "clean"]
STEPS = [2, 2, 4, 2, 4, 2]
SECOND = [1, 3, 5, 9, 11, 15]  # step of each window
LIMIT_S = 60
IN_TORCH = """
import os, shutil, signal, time
import torch

class Workload:
    def __init__(self, config):
        self.config, self.inputs, self.steps = config, (), 0
        self.model = torch.nn.Linear(256, 8)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1, momentum=0.9)

    def step(self):
        self.optimizer.zero_grad()
        loss = self.model(torch.ones(self.config.batch_size, 256)).sum()
        at = self.steps
        HAPPENS
        loss.backward()
        self.optimizer.step()
        self.steps += 1
        return float(self.config.batch_size)

def build(spec, config):
    return Workload(config)
"""
IN_MXNET = """
import resource, signal
import mxnet as mx
from mxnet import autograd, gluon

class Workload:
    def __init__(self, config):
        self.config, self.inputs, self.steps = config, (), 0
        self.model = gluon.nn.Dense(8, in_units=256)
        self.model.initialize()
        self.optimizer = gluon.Trainer(self.model.collect_params(), "sgd", {"momentum": 0.9})

    def step(self):
        with autograd.record():
            loss = self.model(mx.nd.ones((self.config.batch_size, 256))).sum()
        at = self.steps
        HAPPENS
        loss.backward()
        self.optimizer.step(1)
        self.steps += 1
        return float(self.config.batch_size)

def build(spec, config):
    return Workload(config)
"""
LEAVES = {"torch": IN_TORCH, "mxnet": IN_MXNET}
# 256 MiB where 96 are left: small allocations must still succeed, as MXNet aborts where its engine cannot have them.
TOO_LARGE = (
    "pages = int(open('/proc/self/statm').read().split()[0]); "
    "resource.setrlimit(resource.RLIMIT_AS, (pages * 4096 + (96 << 20), resource.RLIM_INFINITY)); "
    "mx.nd.ones((64, 1 << 20)).wait_to_read()"
)
PROCESS = """
import sys
from tbdprof import suite
from tbdprof.cli.main import main
from tbdprof.launch import batch_search
from tbdprof.loop.profiler import LoopProfiler

suite.__path__.append(sys.argv.pop(1))
LoopProfiler.find_peaks = lambda profiler: None
batch_search.search = lambda failed, attempt: batch_search.Fit(5, {2: 300, 5: 600}, 700)
main()
"""
DIES_IN_A_COMMIT = """
import os
import signal
from pathlib import Path

import numpy as np

from tbdprof.facts.recorder import Recorder
from tbdprof.facts.records import Run
from tbdprof.facts.rows import KINDS

recorder = Recorder(Run("toy", "torch"), Path("a.tbd"))
with recorder.window("clean") as window:
    steps = np.zeros(3, KINDS["step"])
    steps["index"], steps["start_ns"], steps["end_ns"] = [0, 1, 2], [0, 10, 20], [10, 20, 30]
    recorder.append(window, {"step": steps})
with recorder.window("memory") as window:
    written = recorder._file._writer._connection
    written.execute("PRAGMA cache_size = 5")  # pages; more has to go to the file before the end
    written.execute("BEGIN IMMEDIATE")
    for part in range(200):
        row = (1, "step", part, "index", "<i8", 1, os.urandom(40000), 0)
        written.execute("INSERT INTO column_block VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
    os.kill(os.getpid(), signal.SIGKILL)
"""

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def tbdprof(monkeypatch: pytest.MonkeyPatch, typed: Command, tmp_path: Path) -> Command:
    """Return a function that runs the command line here, in a folder of its own: exit code, stdout, stderr."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(LoopProfiler, "find_peaks", lambda profiler: None)
    return typed


@pytest.fixture
def training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Path]]:
    """Return what adds the toy to the suite, in which something happens amid each step: the folder it is in."""
    with pytest.MonkeyPatch.context() as patched:
        added = []

        def add(framework: str, happens: str) -> Path:
            files = {f"on_{framework}": LEAVES[framework].replace("HAPPENS", happens)}
            added.append(models.toy(tmp_path / "models", patched, **files))
            added[-1].__enter__()
            return tmp_path / "models"

        yield add
        for each in added:
            each.__exit__(None, None, None)


def start(folder: Path, framework: str) -> subprocess.Popen[str]:
    """Start a run of the toy in a process of its own, which records into a.tbd where the test is."""
    command = [sys.executable, "-c", PROCESS, str(folder), *RUN, "--framework", framework]
    settings = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, env=settings, stdout=-1, stderr=-1, text=True)


def ended(process: subprocess.Popen[str]) -> tuple[int, str, list[str]]:
    """Return a process's exit code, its stdout, and the lines of its stderr."""
    out, err = process.communicate(timeout=LIMIT_S)
    return process.returncode, out, err.splitlines()


def states(recording: Recording) -> list[tuple[str, str]]:
    """Return each window and how it ended."""
    return [(window.name, window.state) for window in recording.windows]


@pytest.mark.parametrize(
    ("framework", "window"), [*(("torch", window) for window in range(6)), ("mxnet", 2), ("mxnet", 4)]
)
def test_an_interrupt_saves_what_there_is_and_exits_with_130(
    tbdprof: Command, training: Callable[..., Path], framework: str, window: int
):
    training(framework, f"at == {SECOND[window]} and signal.raise_signal(signal.SIGINT)")

    said = "tbdprof: interrupted; what was recorded is in a.tbd\n"
    assert tbdprof(*RUN, "--framework", framework) == (130, "", said)
    kept = load(Path("a.tbd"))
    assert states(kept) == [*((name, "complete") for name in WINDOWS[:window]), (WINDOWS[window], "cut short")]
    assert kept.run.ended_by == "KeyboardInterrupt"
    assert [len(each.table("step")) for each in kept.windows[:window]] == STEPS[:window]
    assert [path.name for path in Path().iterdir()] == ["a.tbd"]


@pytest.mark.parametrize(
    ("framework", "window", "number"),
    [
        ("torch", 1, signal.SIGTERM),
        ("torch", 2, signal.SIGTERM),
        ("torch", 4, signal.SIGHUP),
        ("mxnet", 2, signal.SIGTERM),
    ],
)
def test_other_signals_that_end_a_process_do_so_too_with_their_own_code_and_reason(
    tbdprof: Command, training: Callable[..., Path], framework: str, window: int, number: signal.Signals
):
    training(framework, f"at == {SECOND[window]} and signal.raise_signal({int(number)})")

    said = f"tbdprof: ended by {number.name}; what was recorded is in a.tbd\n"
    assert tbdprof(*RUN, "--framework", framework) == (128 + number, "", said)
    kept = load(Path("a.tbd"))
    assert states(kept) == [*((name, "complete") for name in WINDOWS[:window]), (WINDOWS[window], "cut short")]
    assert kept.run.ended_by == f"ended by {number.name}"
    assert signal.getsignal(number) is signal.SIG_DFL
    assert [path.name for path in Path().iterdir()] == ["a.tbd"]


@pytest.mark.parametrize(
    ("happens", "code", "said"),
    [
        ("at == 1 and signal.raise_signal(signal.SIGINT)", 130, "interrupted; nothing was recorded yet"),
        ("at == 1 and signal.raise_signal(signal.SIGTERM)", 143, "ended by SIGTERM; nothing was recorded yet"),
    ],
)
def test_with_force_a_run_that_ends_in_its_warmup_leaves_the_older_recording(
    tbdprof: Command, training: Callable[..., Path], happens: str, code: int, said: str
):
    training("torch", happens)
    save(Recording(Run("older", "torch")), Path("a.tbd"))
    before = Path("a.tbd").read_bytes()

    assert tbdprof(*RUN, "--force", "--framework", "torch") == (code, "", f"tbdprof: {said}\n")
    assert Path("a.tbd").read_bytes() == before
    assert [path.name for path in Path().iterdir()] == ["a.tbd"]


@pytest.mark.parametrize(
    ("options", "happens", "said"),
    [
        (("--device", "cuda:7"), "pass", "sees no CUDA device"),
        (("--kind", "odd"), "pass", "kind"),
        ((), "", "out of memory"),
    ],
)
def test_with_force_a_run_that_fails_before_it_begins_leaves_the_older_recording(
    tbdprof: Command, training: Callable[..., Path], tmp_path: Path, options: tuple[str, ...], happens: str, said: str
):
    folder = training("torch", happens or "pass")
    if not happens:
        file = folder / "toy" / "on_torch.py"
        file.write_text(file.read_text().replace("return Workload(config)", "return torch.empty(1 << 50)"))
    save(Recording(Run("older", "torch")), Path("a.tbd"))
    before = Path("a.tbd").read_bytes()

    code, out, err = tbdprof(*RUN, "--force", "--framework", "torch", *options)
    assert (code != 0, out, err.count("\n")) == (True, "", 1), err
    assert said in err
    assert "recorded" not in err
    assert Path("a.tbd").read_bytes() == before
    assert [path.name for path in Path().iterdir()] == ["a.tbd"]


def test_an_interrupt_from_outside_ends_a_process_in_the_same_way(tbdprof: Command, training: Callable[..., Path]):
    process = start(training("torch", "at == 5 and (open('ready', 'w').close(), time.sleep(60))"), "torch")
    until = time.monotonic() + LIMIT_S
    while not Path("ready").exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)

    assert ended(process) == (130, "", ["tbdprof: interrupted; what was recorded is in a.tbd"])
    assert states(load(Path("a.tbd"))) == [("warmup", "complete"), ("clean", "complete"), ("memory", "cut short")]


def test_a_kill_loses_the_window_it_came_in_and_no_other(tbdprof: Command, training: Callable[..., Path]):
    """What is in the file amid a step is what a process killed there leaves."""
    training("torch", f"at in {SECOND} and shutil.copy('a.tbd', str(at))")
    code, _, said = tbdprof(*RUN, "--framework", "torch")
    assert (code, said) == (0, "tbdprof: recorded in a.tbd\n")

    for window, second in enumerate(SECOND):
        name = f"{WINDOWS[window]} (window {window})"
        _, printed, _ = tbdprof("report", str(second), "--json")
        document = json.loads(printed)
        assert document["run"]["lost_windows"] == [name]
        assert document["run"]["complete"] is False
        assert (document["throughput"] is not None) == (window > 1)
        assert (document["memory"] is not None) == (window > 2)
        assert (document["time"] is not None) == (window > 4)
        _, text, _ = tbdprof("report", str(second))
        assert f"lost: {name}" in text
        assert "incomplete: the process was killed" in text


def test_running_out_of_memory_says_what_was_asked_for_and_which_batch_fits(
    tbdprof: Command, training: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
):
    tried: list[int] = []
    monkeypatch.setattr(
        batch_search, "in_fresh_processes", lambda *_: lambda size: tried.append(size) or Trial(100 + 10 * size, 620)
    )
    training("torch", "torch.empty(1 << 50)")

    code, out, said = tbdprof(*RUN, "--framework", "torch")
    assert (code, out, said.count("\n")) == (1, "", 1)
    assert said.startswith("tbdprof: out of memory (")
    assert f"you tried to allocate {4 << 50} bytes" in said
    assert said.endswith("; what was recorded is in a.tbd: try --batch-size 50\n")
    assert tried == [8, 16, 50]  # 3 % of 620 are left
    kept = load(Path("a.tbd"))
    assert (kept.run.fitting_batch, kept.run.batch_room_bytes) == (50, 620)
    assert kept.run.batch_peaks == {"8": 180, "16": 260, "50": 600}
    assert states(kept) == [("warmup", "cut short"), ("out_of_memory", "complete")]
    assert kept.run.ended_by == "RuntimeError"
    assert sum(role == Role.WEIGHT for role in kept.windows[-1].table("owner")["role"]) == 2
    assert "incomplete: RuntimeError" in tbdprof("report", "a.tbd")[1]


def test_running_out_of_memory_under_mxnet_does_so_too(tbdprof: Command, training: Callable[..., Path]):
    code, out, said = ended(start(training("mxnet", TOO_LARGE), "mxnet"))

    assert (code, out) == (1, "")
    assert len(said) == 1, "\n".join(said)
    assert said[0].startswith("tbdprof: out of memory (")
    assert "Failed to allocate CPU Memory" in said[0]
    assert said[0].endswith("; what was recorded is in a.tbd: try --batch-size 5")
    kept = load(Path("a.tbd"))
    assert states(kept) == [("warmup", "cut short"), ("out_of_memory", "complete")]
    assert (kept.run.ended_by, kept.run.fitting_batch) == ("MXNetError", 5)


@pytest.fixture(params=[False, True], ids=["", "addresses are limited"])
def _limit(request: pytest.FixtureRequest) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (1 << 46, before[1]) if request.param else before)
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.usefixtures("_limit")
def test_a_trial_that_does_not_fit_says_so_and_one_that_does_what_it_took(
    tbdprof: Command, training: Callable[..., Path], capsys: pytest.CaptureFixture[str]
):
    training("torch", "self.config.batch_size > 8 and torch.empty(1 << 50)")
    order = RunRequest("toy", "torch", "cpu", threads=1)

    trials = []
    for size in (8, 9):
        batch_trial.main(replace(order, batch_size=size).to_json())
        trials.append(Trial(**json.loads(capsys.readouterr().out)))

    assert [each.took_bytes is None for each in trials] == [False, True]
    assert all(each.room_bytes > 0 for each in trials)


def test_trials_are_made_in_processes_of_their_own(
    tbdprof: Command, training: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = training("torch", "self.model.held = torch.ones(64 << 20, dtype=torch.uint8)")
    program = (
        "from tbdprof import suite\nfrom tbdprof.launch import batch_trial\n"
        f"suite.__path__.append({str(folder)!r})\nmain = batch_trial.main\n"
    )
    (tmp_path / "trial_of_toy.py").write_text(program)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(batch_search, "MODULE", "trial_of_toy")

    trial = batch_search.in_fresh_processes(
        RunRequest("toy", "torch", "cpu", 512, threads=1, options={"kind": "fancy"})
    )(2)
    assert trial.took_bytes is not None
    assert 64 << 20 <= trial.took_bytes < trial.room_bytes


@pytest.fixture
def full_disk() -> Iterator[None]:
    """Let no file be longer than what the warm-up and the first clean window take."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (60 * 1024, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("full_disk")
def test_a_full_disk_is_one_line_and_the_report_is_printed_all_the_same(
    tbdprof: Command, training: Callable[..., Path]
):
    training("torch", "pass")

    code, out, said = tbdprof(*RUN, "--framework", "torch", "--json")
    assert code == 1
    assert said.count("\n") == 1
    assert said.startswith("tbdprof: writing the file failed, what came later is not in it: ")
    document = json.loads(out)
    assert document["memory"]["mismatches"] == 0
    assert document["run"]["complete"] is True
    assert document["missing"]["file"] in said
    assert states(load(Path("a.tbd")))[:2] == [("warmup", "complete"), ("clean", "complete")]


def test_a_kill_amid_a_commit_loses_only_what_was_being_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    settings = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", DIES_IN_A_COMMIT], env=settings, check=False)
    assert done.returncode == -signal.SIGKILL
    assert Path("a.tbd-journal").stat().st_size > 0

    kept = load(Path("a.tbd"))

    assert states(kept) == [("clean", "complete"), ("memory", "open")]
    assert len(kept.windows[0].table("step")) == 3
    assert len(kept.windows[1].table("step")) == 0
