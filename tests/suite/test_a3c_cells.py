"""With two actors a report is complete and adds up, though both allocate and compute in its windows."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tbdprof import suite
from tbdprof.suite.a3c import PARAMETERS

ROOT = Path(__file__).parent.parent.parent
PROGRAM = Path(__file__).parent / "cells" / "cell.py"
PATH = os.pathsep.join(map(str, (ROOT, ROOT / "tests" / "support")))
ACTORS = 2
OPTIONS = {"actors": ACTORS, "watched_steps": 6}  # of fewer all that count may be of updates that ended together
every_framework = pytest.mark.parametrize("framework", suite.frameworks("a3c"))


@cache
def observed(framework: str) -> dict[str, Any]:
    """Return what a run with two actors prints."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment = {**kept, "PYTHONPATH": PATH, "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    words = [sys.executable, str(PROGRAM), "a3c", framework, "observed", json.dumps(OPTIONS)]
    ended = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=240)
    assert ended.returncode == 0, ended.stderr
    facts: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return facts


@every_framework
def test_memory_adds_up_with_two_actors(framework: str) -> None:
    memory = observed(framework)["report"]["memory"]

    assert sum(memory["at_peak"].values()) == memory["independent_peak_bytes"] == memory["allocator_peak_bytes"]
    assert memory["roles_at_peak"]["unknown"] == memory["roles_max"]["unknown"] == 0
    assert memory["mismatches"] == 0, memory["violations"]


@every_framework
def test_there_are_weights_for_three_networks_gradients_for_two_and_state_for_one(framework: str) -> None:
    facts, network = observed(framework), 4 * PARAMETERS
    memory = facts["report"]["memory"]

    assert facts["held_bytes"] == (1 + ACTORS) * network
    assert network <= facts["state_at_the_end"] < 1.001 * network  # and the number of updates
    if framework != "tensorflow":  # which frees gradients one by one, and renews a variable that one reads meanwhile
        assert memory["at_optimizer_step"]["weight"] == (1 + ACTORS) * network
        assert memory["at_optimizer_step"]["gradient"] == ACTORS * network


@every_framework
def test_time_is_reported_of_both_and_is_never_more_than_there_was(framework: str) -> None:
    time = observed(framework)["report"]["time"]

    assert all(time["phases"][name]["busy_seconds"] > 0 for name in ("forward", "backward", "update"))
    assert sum(phase["seconds"] for phase in time["phases"].values()) == pytest.approx(time["step_s"])
    assert sum(phase["busy_seconds"] for phase in time["phases"].values()) <= time["step_s"]
