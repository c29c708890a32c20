"""torch.compile against arithmetic, and against what torch itself saves for the backward pass without tbdprof."""

import shutil
from collections import Counter
from pathlib import Path

import pytest
from judges.holding import ITEM, assert_adds_up
from judges.process import Json, run_python
from judges.test_feature_maps import LOSS, SEED, live_feature_maps

HAS_COMPILER = bool(shutil.which("g++") or shutil.which("clang++"))
NAMES = ("inductor", "half", "dynamic", "checkpointed", "step")  # in one process, in this order
# What torch saves of a setup, and what is no feature map to tbdprof: autocast's copies of weights.
CASTS = {"half": [24 * 32 * 2, 10 * 24 * 2]}
# Torch checks for hooks on optimizers, and `profile` sets some: an optimizer's step, and what torch puts around it, are
# compiled once more.
AGAIN = {"checkpointed": {"step", "wrapper"}, "step": {"step", "wrapper"}}
NEEDS_A_COMPILER = pytest.mark.skipif(not HAS_COMPILER, reason="needs a C++ compiler, which inductor uses on a CPU")
COMPILING_S = 900  # at most, on a busy machine


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture(scope="module")
def found(folder: Path) -> Json:
    """Return what is known of each setup."""
    names = NAMES if HAS_COMPILER else NAMES[1:]
    words = ["-m", "judges.torch_compiled", str(folder), *names]
    with pytest.MonkeyPatch.context() as patches:
        patches.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder / "inductor"))
        return run_python("torch", words, prepared=True, timeout_s=COMPILING_S)


SETUPS = [pytest.param("inductor", marks=NEEDS_A_COMPILER), *NAMES[1:]]


@pytest.mark.parametrize("name", SETUPS)
def test_watching_changes_nothing(name: str, found: Json) -> None:
    facts = found[name]
    assert facts["same"]
    assert set(facts["compiled"]) <= AGAIN.get(name, set())
    assert len(facts["compiled"]) == len(set(facts["compiled"]))
    assert facts["warned"] == []


@pytest.mark.parametrize("name", SETUPS)
def test_all_memory_has_a_role_and_sizes_are_arithmetic(name: str, found: Json) -> None:
    facts = found[name]
    memory = facts["report"]["memory"]
    assert_adds_up(memory)
    if name == NAMES[0]:  # nothing was allocated before, so that torch's own total is all of this setup
        assert memory["independent_peak_bytes"] == memory["allocator_peak_bytes"]
    trained, adam = facts["trained"], 2 * facts["trained"] + ITEM * facts["parameters"]
    for roles in (memory["roles_at_peak"], memory["roles_max"]):
        assert roles["weight"] == trained
        assert roles["optimizer_state"] == (adam if name == "checkpointed" else trained)
    assert memory["roles_max"]["gradient"] >= trained


@pytest.mark.parametrize("name", SETUPS)
def test_feature_maps_are_what_torch_saves_for_backward(name: str, found: Json, folder: Path) -> None:
    facts = found[name]
    recorded, saved = live_feature_maps(folder / f"{name}.tbd"), Counter(facts["saved"])
    assert recorded - saved == Counter([LOSS, SEED])
    assert saved - recorded == Counter(CASTS.get(name, []))


@pytest.mark.parametrize("name", SETUPS)
def test_forward_backward_and_update_are_told_apart(name: str, found: Json) -> None:
    phases = found[name]["report"]["time"]["phases"]
    assert all(phases[phase]["busy_seconds"] > 0 for phase in ("forward", "backward", "update"))


@NEEDS_A_COMPILER
def test_a_fused_kernel_says_its_operators(found: Json) -> None:
    kernels = found["inductor"]["report"]["kernels"]
    fused = {each["name"]: (each["operators"], kernel["phase"]) for kernel in kernels for each in kernel["fused"]}
    assert fused == {
        "cpp_fused_tanh_0": (["tanh"], "forward"),
        "cpp_fused_tanh_backward_0": (["tanh_backward"], "backward"),
    }
