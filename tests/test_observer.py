"""Whoever is profiled does not notice: the same bits at the end, in a process left as it was."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import forking
import pytest

ROOT = Path(__file__).parent.parent
PROGRAMS = Path(__file__).parent / "observer"
CROSSED = [
    ["warmup", "complete", 2],
    ["clean", "complete", 2],
    ["memory", "complete", 4],
    ["clean", "complete", 2],
    ["kernels", "complete", 4],
    ["clean", "complete", 2],
]
NUMBERS = {"parameters", "gradients", "buffers", "optimizer"}


def environment() -> dict[str, str]:
    """Return this environment without what names the running test."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    places = os.pathsep.join((str(ROOT), str(ROOT / "tests" / "support")))
    return {**kept, "PYTHONPATH": places, "PYTHONDONTWRITEBYTECODE": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}


@cache
def run(framework: str, how: str, threads: int, *, imports: bool = False) -> dict[str, Any]:
    """Return what a run that crosses all windows left behind, and the windows it recorded.

    If it `imports`, its process is a fresh one; otherwise it begins with the framework imported.
    """
    with TemporaryDirectory() as folder:
        words = [str(PROGRAMS / f"on_{framework}.py"), how, str(threads)]
        if imports:
            fresh = [sys.executable, *words]
            done = subprocess.run(fresh, cwd=folder, env=environment(), capture_output=True, text=True, timeout=240)
        else:
            done = forking.run(framework, words, env=environment(), folder=Path(folder))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def changed(framework: str, how: str, threads: int) -> set[str]:
    """Return in what an observed run differs from one that was not."""
    imports = how == "prepared"  # the import after tbdprof is what that is about
    before, after = (run(framework, each, threads, imports=imports)["left"] for each in ("unobserved", how))
    assert before.keys() == after.keys()
    return {name for name in before if before[name] != after[name]}


both = pytest.mark.parametrize("framework", ["torch", "mxnet"])


@both
@pytest.mark.parametrize("threads", [1, 2])
def test_a_profiled_run_ends_with_the_same_bits_in_the_same_state(framework: str, threads: int):
    assert changed(framework, "attached", threads) == set()
    assert run(framework, "attached", threads)["windows"] == CROSSED


@pytest.mark.parametrize(
    "framework",
    [
        "torch",
        "mxnet",
    ],
)
def test_a_framework_prepared_before_its_import_ends_with_the_same_bits_in_the_same_state(framework: str):
    assert changed(framework, "prepared", 1) == set()
    assert run(framework, "prepared", 1, imports=True)["windows"] == CROSSED


@both
def test_models_that_are_found_end_with_the_same_bits_in_the_same_state(framework: str):
    assert changed(framework, "found", 1) == set()
    assert run(framework, "found", 1)["windows"] == CROSSED


@both
def test_one_random_number_drawn_in_the_memory_window_is_noticed(framework: str):
    assert changed(framework, "draws", 1) == {*NUMBERS, f"{framework} generator"}


@both
def test_one_weight_moved_by_one_unit_in_the_last_place_is_noticed(framework: str):
    assert changed(framework, "nudges", 1) == NUMBERS


@both
@pytest.mark.parametrize(
    "how",
    [
        "forks",
        "forks_and_steps",
        "forks_and_exits",
    ],
)
def test_a_child_forked_in_the_memory_window_trains_on_and_changes_nothing(framework: str, how: str):
    assert changed(framework, how, 1) == set()
    assert run(framework, how, 1)["windows"] == CROSSED


@pytest.mark.parametrize("how", ["attached", "prepared"])
def test_a_run_of_tensorflows_ends_with_the_same_bits_in_the_same_state(how: str):
    assert changed("tensorflow", how, 1) == set()
    assert run("tensorflow", how, 1, imports=how == "prepared")["windows"] == CROSSED


def test_one_random_number_of_tensorflows_drawn_in_the_memory_window_is_noticed():
    assert changed("tensorflow", "draws", 1) == {"parameters", "buffers", "optimizer", "tensorflow generator"}
