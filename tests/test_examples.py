"""Every example runs and prints what it promises."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from known_peaks import QUICK_START

from tbdprof.facts.file.reading import load

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
PRINTS = {  # what it prints, and how many runs of a window's name it has
    "failing_loop.py": ["training failed: mat1 and mat2 shapes", "incomplete: RuntimeError", "samples/s"],
    "stages.py": ["samples/s", "not judged: 5 steps", "0.weight/exp_avg_sq"],
    "gan_torch.py": ["Sequential + Sequential", "pairs/s", "sequential0.2.weight", "sequential1.0.weight"],
    "odd_loop_torch.py": ["sentences/s", "lstm.weight_hh_l0/square_avg", "incomplete: the loop ended first"],
    "own_loop_gluon.py": ["HybridSequential", "samples/s", "mxnet 1.9", "equal to the framework's own total"],
    "own_loop_torch.py": ["Sequential", "samples/s", "3.weight/exp_avg_sq", "16×32×32×32"],
    "unchanged_train.py": ["final loss 0."],
}


def run(*words: str, folder: Path) -> str:
    """Run an example and return what it printed."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / words[0]), *words[1:]],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([QUICK_START, str(ROOT)]), "COLUMNS": "120"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_every_example_is_tried():
    assert {path.name for path in EXAMPLES.glob("*.py")} == {*PRINTS, "read_a_recording.py"}


@pytest.mark.parametrize("name", PRINTS)
def test_an_example_prints_what_it_promises(name: str, tmp_path: Path):
    printed = run(name, folder=tmp_path)

    assert [text for text in PRINTS[name] if text not in printed] == []
    assert "does not hold" not in printed
    if "at the peak" in printed:
        (unknown,) = (line for line in printed.splitlines() if line.startswith("unknown"))
        assert unknown.split()[1:3] == ["0", "B"]


def test_reading_a_recording_lists_the_largest_at_the_peak(tmp_path: Path):
    run("odd_loop_torch.py", folder=tmp_path)
    lines = run("read_a_recording.py", "odd_loop.tbd", folder=tmp_path).splitlines()

    assert len(lines) == 5
    sizes = [int(line.split(" bytes")[0].replace(",", "")) for line in lines]
    assert sizes == sorted(sizes, reverse=True)
    assert load(tmp_path / "odd_loop.tbd").run.script == "odd_loop_torch.py"
