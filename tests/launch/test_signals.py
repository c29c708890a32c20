"""Signals and `tbdprof run -- COMMAND`: what comes to it reaches the command, once, and nothing outlives it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from known_peaks import QUICK_START

from tbdprof.errors import UsageError
from tbdprof.facts.file.placing import claim
from tbdprof.facts.file.reading import load
from tbdprof.launch.processes import guard

ROOT = Path(__file__).parents[2]
LIMIT_S = 60
# Runs a command as tbdprof does, without anything else of it.
RUNS = """
import os, sys
from pathlib import Path
from tbdprof.launch.processes import relay
print(relay.run(sys.argv[2:], os.environ, Path(sys.argv[1])).status)
"""
# The same, with the lock of a recording's file.
CLAIMS = """
import os, sys
from pathlib import Path
from tbdprof.facts.file.placing import claim
from tbdprof.launch.processes import relay
with claim(Path("a.tbd"), force=False) as claimed:
    relay.run(sys.argv[2:], os.environ, Path(sys.argv[1]), kept=[claimed.handle])
"""
COUNTS = """
import os, signal, sys
seen = []

def note(number, frame):
    seen.append(number)
    with open("seen", "a") as file:
        print(int(number), file=file)
    if number == signal.SIGTERM:
        sys.exit(7)

for each in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM):
    if signal.getsignal(each) is not signal.SIG_IGN:
        signal.signal(each, note)
open("ready", "w").close()
while True:
    signal.pause()
"""
STARTS = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; open('ready', 'w').close(); time.sleep(600)"])
with open("numbers", "w") as file:
    print(os.getpid(), child.pid, file=file)
time.sleep(600)
"""
TRAINS = """
import sys, time
import torch
import tbdprof
from tbdprof.errors import UsageError

model = torch.nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(7):
    optimizer.zero_grad()
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
try:
    tbdprof.profile(model, optimizer, output="a.tbd", force=True)
except UsageError as error:
    print(error, file=sys.stderr, flush=True)
open("ready", "w").close()
time.sleep(600)
"""

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Return a function that starts a command in a folder and a group of its own, and waits until it is ready."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tmp").mkdir()
    started: list[subprocess.Popen[str]] = []

    def begin(*command: str, **options: object) -> subprocess.Popen[str]:
        path = os.pathsep.join([QUICK_START, str(ROOT)])
        settings = {**os.environ, "PYTHONPATH": path, "TMPDIR": str(tmp_path / "tmp")}
        process = subprocess.Popen(  # type: ignore[call-overload]
            [sys.executable, *command], env=settings, stdout=-1, stderr=-1, text=True, start_new_session=True, **options
        )
        started.append(process)
        wait_until(Path("ready").exists, process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def wait_until(is_so: Callable[[], bool], process: subprocess.Popen[str] | None = None) -> None:
    """Wait until something is so; a process must not end before."""
    until = time.monotonic() + LIMIT_S
    while not is_so():
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.01)


def seen() -> list[int]:
    """Return the signals that the command noted."""
    return [int(line) for line in Path("seen").read_text().splitlines()] if Path("seen").exists() else []


def live(number: int) -> bool:
    """Return whether a process has not ended."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_what_comes_to_it_alone_is_passed_on_and_the_end_is_waited_for(start: Start, tmp_path: Path):
    process = start("-c", RUNS, str(tmp_path / "folder"), sys.executable, "-c", COUNTS)
    numbers = [signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM]
    for count, number in enumerate(numbers, 1):
        process.send_signal(number)
        wait_until(lambda count=count: len(seen()) == count)  # type: ignore[misc]

    assert process.communicate(timeout=LIMIT_S) == ("7\n", "")
    assert seen() == numbers


def test_what_comes_to_the_whole_group_arrives_once(start: Start, tmp_path: Path):
    process = start("-c", RUNS, str(tmp_path / "folder"), sys.executable, "-c", COUNTS)
    for count, number in enumerate((signal.SIGINT, signal.SIGHUP), 1):
        os.killpg(process.pid, number)
        wait_until(lambda count=count: len(seen()) >= count)  # type: ignore[misc]
    time.sleep(0.5)  # a second one would come now
    os.killpg(process.pid, signal.SIGTERM)

    assert process.communicate(timeout=LIMIT_S) == ("7\n", "")
    assert seen() == [signal.SIGINT, signal.SIGHUP, signal.SIGTERM]


def test_what_is_ignored_around_it_stays_ignored_in_the_command(start: Start, tmp_path: Path):
    ignored = (signal.SIGINT, signal.SIGHUP)  # as in the background of a script, and under nohup
    before = [signal.signal(number, signal.SIG_IGN) for number in ignored]
    try:
        process = start("-c", RUNS, str(tmp_path / "folder"), sys.executable, "-c", COUNTS)
    finally:
        for number, handler in zip(ignored, before, strict=True):
            signal.signal(number, handler)
    for number in (*ignored, signal.SIGTERM):
        process.send_signal(number)

    assert process.communicate(timeout=LIMIT_S) == ("7\n", "")
    assert seen() == [signal.SIGTERM]


def test_what_a_command_leaves_behind_when_a_signal_ends_it_gets_the_signal_too(start: Start, tmp_path: Path):
    process = start("-c", RUNS, str(tmp_path / "folder"), sys.executable, "-c", STARTS)
    numbers = [int(number) for number in Path("numbers").read_text().split()]
    assert [live(number) for number in numbers] == [True, True]
    process.send_signal(signal.SIGTERM)

    assert process.communicate(timeout=LIMIT_S) == ("-15\n", "")
    assert [live(number) for number in numbers] == [False, False]


def test_a_kill_ends_the_command_and_what_it_started_and_removes_the_folder(start: Start, tmp_path: Path):
    folder = tmp_path / "folder"
    folder.mkdir()
    process = start("-c", RUNS, str(folder), sys.executable, "-c", STARTS)
    numbers = [int(number) for number in Path("numbers").read_text().split()]
    process.kill()

    wait_until(lambda: not any(map(live, numbers)) and not folder.exists())


def test_a_command_that_outlives_a_killed_tbdprof_keeps_others_from_its_file(start: Start, tmp_path: Path):
    ignores = (
        "import os, signal, time; signal.signal(15, signal.SIG_IGN); "
        "open('number', 'w').write(str(os.getpid())); open('ready', 'w').close(); time.sleep(600)"
    )
    process = start("-c", CLAIMS, str(tmp_path / "folder"), sys.executable, "-c", ignores)
    process.kill()
    process.wait(LIMIT_S)
    with pytest.raises(UsageError, match="is being written by another run"):
        claim(Path("a.tbd"), force=True)
    os.kill(int(Path("number").read_text()), signal.SIGKILL)

    wait_until(lambda: not live(int(Path("number").read_text())))
    claim(Path("a.tbd"), force=True).release()


def test_what_does_not_end_by_a_signal_is_killed_after_a_time_of_grace(start: Start):
    ignores = "import signal, time; signal.signal(15, signal.SIG_IGN); open('ready', 'w').close(); time.sleep(600)"
    process = start("-c", ignores)

    guard.end(guard.tree(process.pid), signal.SIGTERM, grace_s=0.0)
    assert process.wait(LIMIT_S) == -signal.SIGKILL


def test_of_a_script_that_is_killed_what_had_ended_is_read_with_the_true_reason(start: Start, tmp_path: Path):
    Path("train.py").write_text(TRAINS)
    command = ["-m", "tbdprof", "run", "--warmup", "2", "--steps", "2", "-o", "a.tbd"]
    process = start(*command, "--", sys.executable, "train.py")
    second = subprocess.run(
        [sys.executable, *command, "--force", "--", "true"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=LIMIT_S)

    assert process.returncode == 128 + signal.SIGTERM
    said = "a.tbd is being written by another run: choose another name with -o"
    assert (second.returncode, second.stderr) == (2, f"tbdprof: {said}\n")
    assert err.splitlines() == [said, "tbdprof: recorded in a.tbd"]
    assert "incomplete: the script was killed by SIGTERM" in out
    assert "lost: memory (window 2)" in out
    kept = load(Path("a.tbd"))
    assert kept.run.ended_by == "the script was killed by SIGTERM"
    assert [(window.name, window.state) for window in kept.windows] == [
        ("warmup", "complete"),
        ("clean", "complete"),
        ("memory", "open"),
    ]
    assert [item.name for item in (tmp_path / "tmp").iterdir() if item.name.startswith("tbdprof")] == []
    assert sorted(item.name for item in tmp_path.iterdir()) == ["a.tbd", "ready", "tmp", "train.py"]
