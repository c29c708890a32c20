"""`tbdprof run` and processes that a script forks after the import of torch, as `torch.multiprocessing` does."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from known_peaks import QUICK_START

from tbdprof.facts.file.reading import load

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([QUICK_START, str(ROOT)])}
TBDPROF = [sys.executable, "-m", "tbdprof", "run", "--warmup", "2", "--steps", "2", "-o", "a.tbd"]
WINDOWS = [("warmup", 2), ("clean", 2), ("memory", 4), ("clean", 2), ("kernels", 4), ("clean", 2)]
BYTES = 4 * (8 * 4 + 4)  # of all weights
# Processes that update the same weights one after the other, so that the result has the same bits in every run.
SHARED = """
import sys
import torch
import torch.multiprocessing as mp

def train(model, seed):
    torch.manual_seed(seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(20):
        optimizer.zero_grad()
        model(torch.rand(2, 8)).sum().backward()
        optimizer.step()
        if step == int(sys.argv[1]):
            raise KeyError("planted")

if __name__ == "__main__":
    mp.set_start_method("fork")
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 4).share_memory()
    model(torch.ones(2, 8)).sum().backward()  # the parent works, too, but takes no step
    model.zero_grad()
    workers = [mp.Process(target=train, args=(model, seed)) for seed in (1, 2)]
    for each in workers:
        each.start()
        each.join()
    print([each.tolist() for each in model.parameters()])
    sys.exit(max(each.exitcode for each in workers))
"""


@pytest.fixture(autouse=True)
def _apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(SHARED)


def run(words: list[str], fails_after: int = -1) -> subprocess.CompletedProcess[str]:
    """Run the script by a command that begins with these words."""
    command = [*words, sys.executable, "train.py", str(fails_after)]
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=240)


def test_the_first_forked_process_that_takes_a_step_is_recorded_and_trains_the_same():
    plain = run([])
    done = run([*TBDPROF, "--json", "--"])

    assert (done.returncode, done.stderr) == (0, f"{plain.stdout}tbdprof: recorded in a.tbd\n")
    report = json.loads(done.stdout)
    memory, kept = report["memory"], load(Path("a.tbd"))
    assert [(window.name, len(window.table("step"))) for window in kept.windows] == WINDOWS
    assert (kept.run.complete, kept.run.watched_since) == (True, "before the first allocation")
    assert (memory["roles_max"]["unknown"], memory["mismatches"]) == (0, 0)
    assert memory["independent_peak_bytes"] == memory["allocator_peak_bytes"]
    assert memory["roles_max"]["gradient"] == memory["roles_max"]["optimizer_state"] == BYTES
    assert f"{BYTES} bytes of weights" in report["missing"]["foreign_memory"]  # shared with the others


def test_what_ends_a_forked_process_is_in_its_recording():
    done = run([*TBDPROF, "--"], fails_after=5)

    assert done.returncode == 1
    assert "KeyError: 'planted'" in done.stderr
    kept = load(Path("a.tbd")).run
    assert (kept.complete, kept.ended_by) == (False, "the script ended by KeyError")
