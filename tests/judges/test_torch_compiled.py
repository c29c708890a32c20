"""torch.compile against arithmetic, and against what torch itself saves for the backward pass without tbdprof."""

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from judges.holding import ITEM, assert_adds_up
from judges.process import Json, run_python
from judges.test_feature_maps import LOSS, SEED, live_feature_maps

IN_ONE_PROCESS = ("broken", "dynamic", "half", "checkpointed", "step")
# What torch saves of a setup, and what is no feature map to tbdprof: autocast's copies of weights.
CASTS = {"half": [24 * 32 * 2, 10 * 24 * 2]}
# Torch checks for hooks on optimizers, and `profile` sets some: an optimizer's step is compiled once more.
AGAIN = {"checkpointed": 1, "step": 1}
NO_COMPILER = "needs a C++ compiler, which inductor uses on a CPU"
Found = Callable[[str], Json]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture(scope="module")
def found(folder: Path) -> Found:
    """Return what is known of a setup; those that need no C++ compiler run in one process."""
    known: Json = {}

    def of(name: str) -> Json:
        if name not in known:
            together = IN_ONE_PROCESS if name in IN_ONE_PROCESS else (name,)
            known.update(run_python("torch", ["-m", "judges.torch_compiled", str(folder), *together], prepared=True))
        facts: Json = known[name]
        return facts

    return of


SETUPS = [
    *IN_ONE_PROCESS,
    pytest.param(
        "inductor", marks=pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason=NO_COMPILER)
    ),
]


@pytest.mark.parametrize("name", SETUPS)
def test_watching_changes_nothing(name: str, found: Found) -> None:
    facts = found(name)
    assert facts["same"]
    assert facts["compiled"] == AGAIN.get(name, 0)
    assert facts["warned"] == []


@pytest.mark.parametrize("name", SETUPS)
def test_all_memory_has_a_role_and_sizes_are_arithmetic(name: str, found: Found) -> None:
    facts = found(name)
    memory = facts["report"]["memory"]
    assert_adds_up(memory)
    assert memory["independent_peak_bytes"] == memory["allocator_peak_bytes"]
    trained, adam = facts["trained"], 2 * facts["trained"] + ITEM * facts["parameters"]
    for roles in (memory["roles_at_peak"], memory["roles_max"]):
        assert roles["weight"] == trained
        assert roles["optimizer_state"] == (adam if name == "checkpointed" else trained)
    assert memory["roles_max"]["gradient"] >= trained


@pytest.mark.parametrize("name", SETUPS)
def test_feature_maps_are_what_torch_saves_for_backward(name: str, found: Found, folder: Path) -> None:
    facts = found(name)
    recorded, saved = live_feature_maps(folder / f"{name}.tbd"), Counter(facts["saved"])
    assert recorded - saved == Counter([LOSS, SEED])
    assert saved - recorded == Counter(CASTS.get(name, []))
