"""torch.compile against arithmetic, and against what torch itself saves for the backward pass without tbdprof."""

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
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
NEEDS_A_COMPILER = pytest.mark.skipif(
    not (shutil.which("g++") or shutil.which("clang++")), reason="needs a C++ compiler, which inductor uses on a CPU"
)
COMPILING_S = 480  # at most, on a busy machine
Found = Callable[[str], Json]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture(scope="module")
def found(folder: Path) -> Iterator[Found]:
    """Return what is known of a setup; those that need no C++ compiler run in one process."""
    known: Json = {}

    def of(name: str) -> Json:
        if name not in known:
            together = IN_ONE_PROCESS if name in IN_ONE_PROCESS else (name,)
            words = ["-m", "judges.torch_compiled", str(folder), *together]
            known.update(run_python("torch", words, prepared=True, timeout_s=COMPILING_S))
        facts: Json = known[name]
        return facts

    with pytest.MonkeyPatch.context() as patches:
        patches.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder / "inductor"))
        yield of


SETUPS = [*IN_ONE_PROCESS, pytest.param("inductor", marks=NEEDS_A_COMPILER)]


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


@pytest.mark.parametrize("name", SETUPS)
def test_forward_backward_and_update_are_told_apart(name: str, found: Found) -> None:
    phases = found(name)["report"]["time"]["phases"]
    assert all(phases[phase]["busy_seconds"] > 0 for phase in ("forward", "backward", "update"))


@NEEDS_A_COMPILER
def test_a_fused_kernel_says_its_operators(found: Found) -> None:
    kernels = found("inductor")["report"]["kernels"]
    fused = {each["name"]: (each["operators"], kernel["phase"]) for kernel in kernels for each in kernel["fused"]}
    assert fused == {
        "cpp_fused_tanh_0": (["tanh"], "forward"),
        "cpp_fused_tanh_backward_0": (["tanh_backward"], "backward"),
    }
