"""`tbdprof run -- COMMAND`: the script runs as it would without, and a report follows."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from known_peaks import QUICK_START

from tbdprof.facts.file.reading import load
from tbdprof.launch.script import NOTHING_IMPORTED, NOTHING_RECORDED, default_path

ROOT = Path(__file__).parents[2]
TBDPROF = [sys.executable, "-m", "tbdprof", "run", "--warmup", "2", "--steps", "2", "-o", "a.tbd"]
WINDOWS = [("warmup", 2), ("clean", 2), ("memory", 4), ("clean", 2), ("kernels", 4), ("clean", 2)]
TRAINS = """
import os, sys, time
import torch

model = torch.nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

def train(steps=1):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(2, 8)).sum().backward()
        optimizer.step()
"""

GLUON = """
import numpy

vars(numpy).setdefault("bool", bool)
import mxnet as mx

net = mx.gluon.nn.Dense(4, in_units=8)
net.initialize()
trainer = mx.gluon.Trainer(net.collect_params(), "sgd", {"momentum": 0.9})
for _ in range(20):
    with mx.autograd.record():
        loss = net(mx.nd.ones((2, 8))).sum()
    loss.backward()
    trainer.step(2)
"""


@pytest.fixture(autouse=True)
def _apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(
    *command: str, options: tuple[str, ...] = (), path: str = "", quick: str = QUICK_START
) -> subprocess.CompletedProcess[str]:
    """Profile a command; without `quick`, it starts as a user's does."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [path, quick, str(ROOT)]))}
    return subprocess.run(
        [*TBDPROF, *options, "--", *command], env=environment, capture_output=True, text=True, timeout=240
    )


def script(ending: str, *, trains: bool = True) -> list[str]:
    """Write a script that trains, or does not, and return the command that runs it."""
    Path("train.py").write_text((TRAINS if trains else "") + ending)
    return [sys.executable, "train.py"]


def windows() -> list[tuple[str, int]]:
    """Return the windows recorded, and their steps."""
    return [(window.name, len(window.table("step"))) for window in load(Path("a.tbd")).windows]


def test_an_unchanged_script_prints_what_it_prints_and_is_reported_on_after():
    done = run(sys.executable, str(ROOT / "examples" / "unchanged_train.py"), quick="")

    assert (done.returncode, done.stderr) == (0, "tbdprof: recorded in a.tbd\n")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("final loss 0.")
    assert lines[1].startswith("unchanged_train.py · ")
    assert "2.weight/momentum_buffer" in done.stdout
    assert windows() == WINDOWS
    kept = load(Path("a.tbd")).run
    assert (kept.complete, kept.script) == (True, "unchanged_train.py")
    assert kept.watched_since == "before the first allocation"


def test_a_script_in_mxnet_is_watched_from_its_first_allocation_on():
    Path("train.py").write_text(GLUON)
    done = run(sys.executable, "train.py", options=("--json",))

    assert done.returncode == 0, done.stderr
    memory = json.loads(done.stdout)["memory"]
    assert memory["independent_peak_bytes"] == memory["allocator_peak_bytes"]
    assert memory["roles_at_peak"]["optimizer_state"] == 4 * (8 * 4 + 4)
    assert windows() == WINDOWS


def test_with_json_the_report_alone_is_on_stdout_with_memory_from_the_scripts_first_allocation_on():
    done = run(*script("train(20); print('trained'); print('warned', file=sys.stderr)"), options=("--json",))

    assert done.returncode == 0
    report = json.loads(done.stdout)
    assert report["run"]["steps"]["memory"] == 4
    assert report["memory"]["independent_peak_bytes"] == report["memory"]["allocator_peak_bytes"]
    assert sorted(done.stderr.splitlines()) == ["tbdprof: recorded in a.tbd", "trained", "warned"]


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ("train(20); sys.exit(3)", 3),
        ("train(20); os.kill(os.getpid(), 15)", 128 + signal.SIGTERM),
        ("train(20); raise KeyError('a')", 1),
    ],
)
def test_the_exit_code_is_passed_through_and_the_report_printed(ending: str, code: int):
    done = run(*script(ending))

    assert done.returncode == code
    assert done.stdout.startswith("train.py · ")
    assert windows() == WINDOWS


def test_a_script_that_ends_early_keeps_what_there_is():
    done = run(*script("train(6)"))

    assert done.returncode == 0
    assert windows() == [("warmup", 2), ("clean", 2), ("memory", 1)]
    assert load(Path("a.tbd")).run.ended_by == "the script ended first"


@pytest.mark.parametrize(
    ("ending", "trains", "code"), [("", True, 0), ("print('hello')", False, 0), ("import sys; sys.exit(4)", False, 4)]
)
def test_of_a_script_that_never_trains_that_is_reported(ending: str, trains: bool, code: int):
    done = run(*script(ending, trains=trains))

    assert done.returncode == code
    nothing = "PyTorch was imported, but no optimizer stepped, and no weight changed after a backward pass"
    seen = nothing if trains else NOTHING_IMPORTED
    assert done.stderr == f"tbdprof: {NOTHING_RECORDED.format(seen=seen)}\n"
    assert done.stderr.endswith("; put tbdprof.profile around the loop\n")
    assert not Path("a.tbd").exists()


def test_where_another_framework_was_asked_for_that_is_said():
    done = run(*script("train(3)"), options=("--framework", "mxnet"))

    assert done.returncode == 0
    seen = "no process of the script was seen to import mxnet, the one framework that --framework lets be watched"
    assert done.stderr == f"tbdprof: {NOTHING_RECORDED.format(seen=seen)}\n"


@pytest.mark.parametrize(("ending", "code"), [("", 1), ("import sys; sys.exit(4)", 4)])
def test_who_requires_a_recording_gets_1_where_a_script_succeeds_without(ending: str, code: int):
    done = run(*script(ending, trains=False), options=("--require-recording",))

    assert (done.returncode, done.stderr) == (code, f"tbdprof: {NOTHING_RECORDED.format(seen=NOTHING_IMPORTED)}\n")


def test_a_report_that_fails_changes_no_exit_code():
    breaks = "import atexit; atexit.register(lambda: open('a.tbd', 'w').write('junk'))"  # before tbdprof's own end
    Path("train.py").write_text(f"{breaks}\n{TRAINS}train(6); sys.exit(3)")
    done = run(sys.executable, "train.py", options=("--require-recording",))

    assert (done.returncode, done.stdout) == (3, "")
    said = "recorded in a.tbd, but the report failed: a.tbd is not a tbdprof recording"
    assert done.stderr == f"tbdprof: {said}\n"


def test_a_script_that_ends_at_once_or_has_a_launcher_says_so_in_its_recording():
    done = run(*script("train(4); os._exit(5)"))
    assert done.returncode == 5
    assert load(Path("a.tbd")).run.ended_by == "the script ended with 5 at once, without Python's end"

    started = f"{sys.executable} train.py; exit 6"
    done = run("sh", "-c", started, options=("--force",))
    assert done.returncode == 6
    said = "the process was killed; the command that started it ended with 6"
    assert load(Path("a.tbd")).run.ended_by == said
    assert f"incomplete: {said}" in done.stdout


def test_of_a_script_that_dies_of_a_signal_that_is_reported_first():
    done = run(*script("import os; os.kill(os.getpid(), 11)", trains=False))

    assert done.returncode == 128 + signal.SIGSEGV
    said = NOTHING_RECORDED.format(seen=NOTHING_IMPORTED)
    assert done.stderr == f"tbdprof: the script ended with 139 (SIGSEGV); {said}\n"


def test_a_command_that_is_not_there_cannot_be_started():
    done = run("no-such-command")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "tbdprof: cannot start no-such-command: No such file or directory\n"


def test_a_script_given_without_its_python_gets_the_command_to_type():
    script("")
    done = run("train.py")

    assert (done.returncode, done.stdout) == (2, "")
    hint = "to profile a script, type: tbdprof run -- python train.py"
    assert done.stderr == f"tbdprof: cannot start train.py: {hint}\n"


def test_a_sitecustomize_of_the_users_own_is_honoured():
    Path("theirs").mkdir()
    Path("theirs/sitecustomize.py").write_text("import sys; sys.mark = 'set by theirs'")
    done = run(*script("train(20); print(sys.mark)"), path=str(Path("theirs").resolve()))

    assert done.returncode == 0
    assert done.stdout.startswith("set by theirs\ntrain.py · ")
    assert windows() == WINDOWS


def test_the_script_finds_its_path_its_environment_and_its_arguments_as_they_were():
    prints = "print(sys.path, sys.argv, sorted(os.environ), [type(each).__name__ for each in sys.meta_path])"
    command = [*script(f"train(20); {prints}"), "--epochs", "3"]
    alone = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True
    )

    done = run(*command, quick="")

    assert done.stdout.splitlines()[:1] == alone.stdout.splitlines()


def test_processes_that_the_script_starts_once_it_trains_are_left_alone():
    child = f"import subprocess; subprocess.run([sys.executable, '-c', {TRAINS + 'train(30)'!r}], check=True)"
    done = run(*script(f"train(1)\n{child}\ntrain(17)\n{child}"))

    assert (done.returncode, done.stderr) == (0, "tbdprof: recorded in a.tbd\n")
    assert windows() == WINDOWS
    assert load(Path("a.tbd")).run.script == "train.py"


def test_what_a_launcher_starts_is_recorded_once_whichever_process_steps_first():
    Path("launch.py").write_text(
        "import subprocess, sys, torch\n"
        "ranks = [subprocess.Popen([sys.executable, 'train.py', rank]) for rank in 'ab']\n"
        "sys.exit(max(rank.wait() for rank in ranks))"
    )
    prints = "print(sys.argv[1], 'TBDPROF_ATTACH' in os.environ, 'startup' in os.environ.get('PYTHONPATH', ''))"
    script(f"train(20); {prints}")
    done = run(sys.executable, "launch.py")

    assert (done.returncode, done.stderr) == (0, "tbdprof: recorded in a.tbd\n")
    assert sorted(done.stdout.splitlines()[:2]) == ["a False False", "b False False"]
    assert windows() == WINDOWS
    kept = load(Path("a.tbd")).run
    assert (kept.complete, kept.script) == (True, "train.py")


@pytest.mark.parametrize(
    "probe",
    [
        "import importlib.util; importlib.util.find_spec('torch')",
        "try:\n    import mxnet\nexcept ImportError:\n    pass",
    ],
)
def test_a_framework_that_is_looked_for_before_the_import_is_watched_all_the_same(probe: str):
    Path("stubs").mkdir()
    Path("stubs/mxnet.py").write_text("raise ImportError('broken')")
    Path("train.py").write_text(f"{probe}\n{TRAINS}train(20)")
    done = run(sys.executable, "train.py", options=("--json",), path=str(Path("stubs").resolve()))

    assert done.returncode == 0, done.stderr
    memory = json.loads(done.stdout)["memory"]
    assert memory["independent_peak_bytes"] == memory["allocator_peak_bytes"]
    assert windows() == WINDOWS


def test_what_lies_beside_tbdprof_is_not_offered_to_the_script(tmp_path: Path):
    site, theirs = tmp_path / "site", tmp_path / "theirs"
    for folder, text in ((site, "tbdprof's"), (theirs, "the script's")):
        folder.mkdir()
        (folder / "torchmetrics.py").write_text(f'name = "{text}"')
    (site / "tbdprof").symlink_to(ROOT / "tbdprof")
    script("train(2); import torchmetrics; print(torchmetrics.name, os.environ['PYTHONPATH'])")
    shield = f"import os, sys; os.environ['PYTHONPATH'] = {str(theirs)!r}; sys.path.insert(0, {str(site)!r}); "
    begin = "sys.argv[1:] = ['run', '-o', 'a.tbd', '--', sys.executable, 'train.py']; "
    command = [sys.executable, "-c", shield + begin + "from tbdprof.cli.main import main; main()"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=True)

    assert done.stdout.splitlines()[0] == f"the script's {theirs}"
    assert done.stderr == "tbdprof: recorded in a.tbd\n"


def test_an_error_of_tbdprofs_own_ends_the_watching_and_not_the_training():
    breaks = """
from tbdprof.errors import UnavailableError
from tbdprof.loop.windows import Stages

def fail(*_):
    raise UnavailableError("the counter is gone")

Stages._end_block = fail
train(20)
print("trained")
"""
    done = run(*script(breaks))

    assert done.returncode == 0
    assert done.stdout.startswith("trained\n")
    assert done.stderr.splitlines() == [
        "tbdprof: the counter is gone; the script goes on unwatched",
        "tbdprof: no step was recorded, so there is no file",
    ]


def test_of_a_script_whose_disk_is_full_from_the_start_that_is_said():
    full = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))\n"
    done = run(*script(full + "train(20)"))

    assert done.returncode == 0
    assert done.stderr.startswith("tbdprof: writing the file failed, nothing is kept of this run: ")
    assert done.stderr.count("\n") == 1
    assert not Path("a.tbd").exists()


def test_a_child_forked_in_the_memory_window_is_left_alone():
    fork = "train(6)\nif os.fork() == 0:\n    train(20)\n    os._exit(0)\nprint(os.wait()[1])\ntrain(14)"
    done = run(*script(fork))

    assert done.stdout.startswith("0\ntrain.py · ")
    assert windows() == WINDOWS
    assert load(Path("a.tbd")).run.complete


def test_an_interrupt_is_the_scripts_to_answer_and_what_was_recorded_is_kept():
    command = script("train(4); open('ready', 'w').close(); time.sleep(60)")
    process = subprocess.Popen(
        [*TBDPROF, "--", *command],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([QUICK_START, str(ROOT)])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    until = time.monotonic() + 60
    while not Path("ready").exists():
        assert time.monotonic() < until
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)

    out, err = process.communicate(timeout=240)

    assert process.returncode == 128 + signal.SIGINT
    assert out.startswith("train.py · ")
    assert err.splitlines()[-2:] == ["KeyboardInterrupt", "tbdprof: recorded in a.tbd"]
    assert windows() == [("warmup", 2), ("clean", 1)]


def test_the_file_is_named_after_the_script():
    assert default_path(["python", "some/train.py", "--data", "x.py"]).name.startswith("train-")
    assert default_path(["/bin/accelerate", "launch"]).name.startswith("accelerate-")
    assert default_path(["python", "-m", "mine.train", "--epochs", "2"]).name.startswith("mine.train-")
    assert default_path(["torchrun", "-m", "mine"]).name.startswith("mine-")


def beside(name: str, text: str, ending: str) -> list[str]:
    """Write a script that trains and a module beside it, and return the command that runs the script."""
    Path("own").mkdir()  # the folder of tbdprof's own process is another one
    Path(f"own/{name}.py").write_text(text)
    Path("own/train.py").write_text(f"{TRAINS}train(20)\n{ending}")
    return [sys.executable, "own/train.py"]


def test_a_module_with_a_standard_ones_name_stays_the_scripts_own():
    command = beside("statistics", "name = 'the script'", "import statistics; print(statistics.name)")
    done = run(*command)

    assert (done.returncode, done.stderr) == (0, "tbdprof: recorded in a.tbd\n")
    assert done.stdout.startswith("the script\n")
    assert windows() == WINDOWS


def test_a_module_that_hides_one_which_tbdprof_needs_is_named():
    done = run(*beside("resource", "print('imported')", ""))

    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.splitlines()[0] == (
        f"tbdprof: {Path('own/resource.py').resolve()} hides Python's own module resource, which tbdprof needs: "
        "give it another name; the script goes on unwatched"
    )


def test_a_package_has_its_own_name_and_a_second_training_ends_the_recording():
    Path("mine").mkdir()
    other = """
other = torch.nn.Linear(3, 3)
optimizer_of_other = torch.optim.SGD(other.parameters(), 0.1)
for _ in range(120):
    other(torch.ones(2, 3)).sum().backward()
    optimizer_of_other.step()
"""
    Path("mine/__main__.py").write_text(f"{TRAINS}train(10)\n{other}")
    done = run(sys.executable, "-m", "mine")

    assert (done.returncode, done.stderr) == (0, "tbdprof: recorded in a.tbd\n")
    kept = load(Path("a.tbd")).run
    assert kept.script == "mine"
    assert [each.name for each in kept.parameters] == ["weight", "bias"]
    assert kept.ended_by == "another training followed: other weights were updated in the last 101 optimizer steps"
