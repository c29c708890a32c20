"""The callbacks for libraries' own loops: the same training to the bit, and the figures of the same training by hand.

Each program trains in every way in one process, in which each training begins from the same seed.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tbdprof import load

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TIMEOUT_S = 500
STEPS = 20
LIBRARIES = ("lightning", "transformers", "gluon")
WINDOWS = [["warmup", 2], ["clean", 2], ["memory", 4], ["clean", 2], ["kernels", 4], ["clean", 2]]
# What a library itself keeps besides, in bytes. Lightning: a copy of the loss. Transformers: two, and the batch that it
# loads ahead with its length. Gluon: the batch before, with its labels, outputs and losses.
KEPT = {
    "lightning": {"feature_map": 4},
    "transformers": {"feature_map": 8, "input": 2 * 4 * 16 * 8 + 8},
    "gluon": {"feature_map": 4 * 8 * 10 + 4 * 8, "input": 4 * 8 * 24 + 4 * 8},
}
every = pytest.mark.parametrize("library", LIBRARIES)


@cache
def folder() -> tempfile.TemporaryDirectory[str]:
    """Return a folder that lasts as long as this process."""
    return tempfile.TemporaryDirectory()


@cache
def trained(library: str) -> dict[str, Any]:
    """Return what a program found in all its trainings, and `stderr`, what it said there."""
    paths = os.pathsep.join(map(str, (ROOT, HERE, ROOT / "tests" / "support")))
    done = subprocess.run(
        [sys.executable, str(HERE / f"callbacks_{library}.py")],
        cwd=folder().name,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {**found, "stderr": done.stderr}


def steps(found: dict[str, Any]) -> int:
    """Return how many steps a recording has."""
    return sum(count for _, count in found["windows"])


def roles(found: dict[str, Any]) -> dict[str, int]:
    """Return the bytes of each role at the peak that has any."""
    named = {path.rpartition(".")[2]: size for path, size in found["figures"].items() if ".roles_at_peak." in path}
    return {role: size for role, size in named.items() if size}


@every
def test_the_weights_are_to_the_bit_those_without_the_callback(library: str) -> None:
    found = trained(library)
    ways = [name.removesuffix(" plain") for name in found if name.endswith(" plain")]

    assert found["callback"]["weights"] == found["plain"]["weights"]
    assert [way for way in ways if found[way]["weights"] != found[f"{way} plain"]["weights"]] == []
    assert len({found[way]["weights"] for way in ("callback", *ways)}) > len(ways) - (library == "lightning")


@every
def test_nothing_is_unknown_and_every_identity_holds(library: str) -> None:
    for way, each in trained(library).items():
        for found in each if isinstance(each, list) else [each]:
            if "figures" in found:
                assert (found["violations"], found["figures"]["memory.mismatches"]) == ([], 0), way
                assert found["figures"]["memory.roles_max.unknown"] == 0, way


@every
def test_memory_flops_and_steps_are_those_of_the_same_training_in_a_loop_of_ones_own(library: str) -> None:
    watched, plain = trained(library)["callback"], trained(library)["plain loop"]

    more = {role: roles(watched)[role] - size for role, size in roles(plain).items() if role != "dynamic"}
    assert {role: size for role, size in more.items() if size} == KEPT[library]
    assert roles(watched).keys() == roles(plain).keys()
    assert watched["windows"] == plain["windows"] == WINDOWS
    for name in ("run.flops_per_unit.steps", "run.flops_per_sample", "run.batch_size", "run.parameters"):
        assert watched["figures"][name] == plain["figures"][name] > 0


@pytest.mark.parametrize("library", ["lightning", "transformers"])
def test_the_batches_that_an_update_accumulates_are_one_step(library: str) -> None:
    found = trained(library)

    assert found["accumulates"]["windows"] == WINDOWS
    flops = [found[way]["figures"]["run.flops_per_unit.steps"] for way in ("callback", "accumulates")]
    assert flops[1] == 2 * flops[0]


def test_two_optimizers_that_a_batch_steps_by_hand_are_one_step() -> None:
    assert trained("lightning")["two optimizers"]["windows"] == WINDOWS


@pytest.mark.parametrize(
    ("library", "way"), [("lightning", "validates"), ("transformers", "evaluates"), ("gluon", "validates")]
)
def test_a_validation_is_no_step(library: str, way: str) -> None:
    assert trained(library)[way]["windows"] == WINDOWS


@pytest.mark.parametrize("library", ["lightning", "transformers"])
def test_a_training_of_few_steps_has_its_memory_and_says_what_is_missing(library: str) -> None:
    found = trained(library)["is short"]

    assert (found["complete"], steps(found)) == (False, 3)
    assert roles(found)["weight"] == roles(trained(library)["callback"])["weight"]
    assert "throughput.samples_per_s" not in found["figures"]
    assert "the run ended before a clean window" in found["missing"]["throughput"]
    assert "incomplete: the loop ended first" in found["report"]


@pytest.mark.parametrize(("way", "raised", "said"), [
    ("raises", "ValueError", "ValueError"),
    ("is interrupted", "SystemExit", "KeyboardInterrupt"),  # Lightning makes the one of the other
])  # fmt: skip
def test_what_ends_a_fit_passes_through_lightning_and_is_in_the_recording(way: str, raised: str, said: str) -> None:
    found = trained("lightning")[way]

    assert (found["raised"], found["ended_by"], found["complete"]) == (raised, said, False)
    assert found["weights"] == trained("lightning")["raises"]["weights"]
    assert steps(found) == 12
    assert load(Path(folder().name, "interrupted.tbd")).run.ended_by == "KeyboardInterrupt"


@pytest.mark.parametrize("library", ["transformers", "gluon"])
def test_a_profiler_that_an_exception_left_stops_when_another_begins(library: str) -> None:
    assert trained(library)["raises"]["raised"] == "planted"
    assert trained(library)["left"] == {"active": False, "ended_by": "the loop ended first"}


@every
def test_each_training_with_one_callback_has_a_file_of_its_own(library: str) -> None:
    first, second = trained(library)["twice"]
    stem = "twice" if library == "lightning" else library

    for found, name in ((first, f"{stem}.tbd"), (second, f"{stem}-2.tbd")):
        assert found["windows"] == WINDOWS
        assert found["weights"] == trained(library)["plain"]["weights"]
        assert load(Path(folder().name, name)).run.complete


def test_a_profiler_around_the_fit_counts_its_steps() -> None:
    assert trained("lightning")["given"]["windows"] == WINDOWS


def test_accelerate_needs_no_callback() -> None:
    found = trained("transformers")["accelerate"]

    assert found["windows"] == WINDOWS
    assert (
        found["figures"]["run.flops_per_unit.steps"]
        == trained("transformers")["accumulates"]["figures"]["run.flops_per_unit.steps"]
    )


@every
def test_nothing_was_complained_of(library: str) -> None:
    assert "tbdprof:" not in trained(library)["stderr"]


def examples() -> dict[str, str]:
    """Return the Python code of the documentation, by the heading above it."""
    parts = re.split(r"^## (.+)$", (ROOT / "docs" / "integrations.md").read_text(), flags=re.MULTILINE)
    texts = dict(zip(parts[1::2], parts[2::2], strict=True))
    blocks = {head: re.findall(r"```python\n(.*?)```", text, re.DOTALL) for head, text in texts.items()}
    return {head: "".join(found) for head, found in blocks.items() if found and head != "Loggers"}


@pytest.mark.parametrize("heading", ["Lightning", "Hugging Face", "Gluon's Estimator", "Accelerate"])
def test_the_example_in_the_documentation_prints_its_report(heading: str, tmp_path: Path) -> None:
    assert len(examples()) == 4
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", examples()[heading]],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    assert "Memory of cpu at the peak" in done.stdout
    assert re.search(r"unknown +0 B +0.0 %", done.stdout)
    assert "tbdprof:" not in done.stderr
