"""Runs of the command line that end as nobody wished: what had ended is kept, and one line says what happened."""

import json
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tbdprof.recording import Recording, load

ROOT = Path(__file__).parent.parent
TBDPROF = [sys.executable, "-m", "tbdprof"]
SMALL = ["resnet50", "--image-size", "64", "--batch-size", "2", "--threads", "1"]
WINDOWS = ["warmup", "clean", "memory", "clean", "kernels", "clean"]
STEPS = [2, 2, 4, 2, 4, 2]
LIMIT_S = 120
DIES_IN_A_COMMIT = """
import os
from pathlib import Path

import numpy as np

from tbdprof.recorder import Recorder
from tbdprof.records import KINDS, Run

recorder = Recorder(Run("toy", "torch"), Path("a.tbd"))
with recorder.window("clean") as window:
    recorder.append(window, {"step": np.zeros(3, KINDS["step"])})
with recorder.window("memory") as window:
    written = recorder._writer._connection
    written.execute("PRAGMA cache_size = 5")  # pages; more has to go to the file before the end
    written.execute("BEGIN IMMEDIATE")
    for part in range(200):
        row = (1, "step", part, "index", "<i8", 1, os.urandom(40000))
        written.execute("INSERT INTO column_block VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    os._exit(9)
"""


def start(*words: str, framework: str = "torch", before: Callable[[], None] | None = None) -> subprocess.Popen[str]:
    """Start a small run that records into a.tbd, where the test is."""
    return subprocess.Popen(
        [
            *TBDPROF,
            "run",
            *SMALL,
            "--framework",
            framework,
            "--warmup",
            "2",
            "--steps",
            "2",
            "-q",
            "-o",
            "a.tbd",
            *words,
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=before,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str, list[str]]:
    """Return a process's exit code, its stdout, and the lines of its stderr."""
    out, err = process.communicate(timeout=LIMIT_S)
    return process.returncode, out, err.splitlines()


def report(*words: str) -> str:
    """Return what `tbdprof report a.tbd` prints."""
    command = [*TBDPROF, "report", "a.tbd", *words]
    return subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True, stdout=-1, text=True).stdout


@contextmanager
def frozen_in(window: int, process: subprocess.Popen[str]) -> Iterator[None]:
    """Stop a process while a window of its recording is open; it goes on afterwards."""
    until = time.monotonic() + LIMIT_S
    while process.poll() is None and time.monotonic() < until:
        if open_window() == window:
            time.sleep(0.02)  # past the commit that follows a window's begin
            process.send_signal(signal.SIGSTOP)
            if open_window() == window:
                break
            process.send_signal(signal.SIGCONT)
        time.sleep(0.002)
    assert process.poll() is None, process.communicate()
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def open_window() -> int | None:
    """Return the window that the file says is open, None where there is none or it is being written."""
    query = "SELECT ordinal FROM window WHERE state = 'open'"
    try:
        with closing(sqlite3.connect("file:a.tbd?mode=ro", uri=True, timeout=0)) as file:
            return next((ordinal for (ordinal,) in file.execute(query)), None)
    except sqlite3.Error:
        return None


def states(recording: Recording) -> list[tuple[str, str]]:
    """Return each window and how it ended."""
    return [(window.name, window.state) for window in recording.windows]


@pytest.fixture(autouse=True)
def _apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("framework", "window"), [*(("torch", window) for window in range(6)), ("mxnet", 2), ("mxnet", 4)]
)
def test_an_interrupt_saves_what_there_is_and_exits_with_130(framework: str, window: int):
    process = start(framework=framework)
    with frozen_in(window, process):
        process.send_signal(signal.SIGINT)

    assert ended(process) == (130, "", ["tbdprof: interrupted; what was recorded is in a.tbd"])
    kept = load(Path("a.tbd"))
    assert states(kept) == [*((name, "complete") for name in WINDOWS[:window]), (WINDOWS[window], "cut short")]
    assert kept.run.ended_by == "KeyboardInterrupt"
    assert [len(each.table("step")) for each in kept.windows[:window]] == STEPS[:window]
    assert [path.name for path in Path().iterdir()] == ["a.tbd"]


@pytest.mark.parametrize("window", range(6))
def test_a_kill_loses_the_window_it_came_in_and_no_other(window: int):
    process = start()
    with frozen_in(window, process):
        process.kill()

    assert ended(process) == (-signal.SIGKILL, "", [])
    name = f"{WINDOWS[window]} (window {window})"
    document = json.loads(report("--json"))
    assert document["run"]["lost_windows"] == [name]
    assert document["run"]["complete"] is False
    assert (document["throughput"] is not None) == (window > 1)
    assert (document["memory"] is not None) == (window > 2)
    assert (document["time"] is not None) == (window > 4)
    text = report()
    assert f"lost: {name}" in text
    assert "incomplete: the process was killed" in text


@pytest.mark.parametrize(
    ("framework", "asked"),
    [
        ("torch", "you tried to allocate"),
        ("mxnet", "Failed to allocate CPU Memory"),
    ],
)
def test_running_out_of_memory_says_what_was_asked_for_and_what_to_try(framework: str, asked: str):
    process = start("--batch-size", "512", framework=framework)
    with frozen_in(0, process):
        # One array of the first step is larger than what is left, wherever the process is stopped: the framework's own
        # small allocations must still succeed, as MXNet aborts where its engine cannot have them.
        left_bytes = 96 << 20
        limit = 4096 * int(Path(f"/proc/{process.pid}/statm").read_text().split()[0]) + left_bytes
        resource.prlimit(process.pid, resource.RLIMIT_AS, (limit, limit))

    code, out, said = ended(process)
    assert (code, out) == (1, "")
    assert len(said) == 1, "\n".join(said)
    assert said[0].startswith("tbdprof: out of memory (")
    assert asked in said[0]
    kept = load(Path("a.tbd"))
    fits = kept.run.fitting_batch
    tried = "try a smaller --batch-size" if fits is None else f"try --batch-size {fits}"
    assert said[0].endswith(f"; what was recorded is in a.tbd: {tried}")
    assert states(kept)[0] == ("warmup", "cut short")
    assert [name for name, _ in states(kept)] == ["warmup", "out_of_memory"]
    assert kept.run.ended_by in ("RuntimeError", "MXNetError")
    assert f"incomplete: {kept.run.ended_by}" in report()


def test_a_full_disk_is_one_line_and_the_report_is_printed_all_the_same():
    most = 60 * 1024  # the warm-up and the first clean window fit
    process = start("--json", before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)))

    code, out, said = ended(process)
    assert code == 1
    assert len(said) == 1, "\n".join(said)
    assert said[0].startswith("tbdprof: writing the file failed, what came later is not in it: ")
    document = json.loads(out)
    assert document["memory"]["mismatches"] == 0
    assert document["run"]["complete"] is True
    assert document["missing"]["file"] in said[0]
    assert states(load(Path("a.tbd")))[0] == ("warmup", "complete")


def test_a_kill_amid_a_commit_loses_only_what_was_being_committed():
    subprocess.run([sys.executable, "-c", DIES_IN_A_COMMIT], env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False)
    assert Path("a.tbd-journal").stat().st_size > 0

    kept = load(Path("a.tbd"))

    assert states(kept) == [("clean", "complete"), ("memory", "open")]
    assert len(kept.windows[0].table("step")) == 3
    assert len(kept.windows[1].table("step")) == 0
