"""MXNet's build for CUDA on a simulated device: its pools, its counter, its engine and its fusion are the real ones."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gpu.stand_in.on_mxnet import stand_in

from tbdprof.analysis.memory.post_mortem import examine
from tbdprof.analysis.summary import summarize
from tbdprof.facts.file.reading import load
from tbdprof.facts.records import Role, SpanKind
from tbdprof.results.summary import Summary

pytestmark = pytest.mark.skipif(stand_in.why_not() is not None, reason=stand_in.why_not() or "")
LOOPS = Path(__file__).with_name("loops.py")
MIB = 1 << 20
LIMIT_S = 120.0
DENSE = 10 * (16 * 33 * 33 + 1)
IMAGE_WEIGHTS = 4 * (16 * (3 * 9 + 1) + 16 * (16 * 9 + 1) + 2 * 16 + DENSE)
RECURRENT_WEIGHTS = 4 * (100 * 32 + 4 * 48 * (32 + 48 + 2) + 4 * 48 * (48 + 48 + 2) + 10 * (20 * 48 + 1))


@pytest.fixture(scope="session")
def device(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the library that is the device."""
    return stand_in.make(tmp_path_factory.mktemp("device"))


def begun(device: Path, path: Path, name: str, *batch: int, **settings: object) -> "subprocess.CompletedProcess[str]":
    """Run a loop to its end, however that is."""
    command = [sys.executable, "-W", "ignore", str(LOOPS), name, str(path), *map(str, batch)]
    environment = stand_in.environment(device, **settings)
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False)


def recorded(device: Path, folder: Path, name: str, **settings: object) -> tuple[dict[str, Any], Summary]:
    """Record a loop in a process of its own; return what it printed, and the recording's summary."""
    path = folder / "loop.tbd"
    done = begun(device, path, name, **settings)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "is not stood in for" not in done.stderr
    return json.loads(done.stdout), summarize(load(path))


@pytest.mark.parametrize(
    ("name", "pool", "weights"),
    [
        ("plain", "Naive", IMAGE_WEIGHTS),
        ("hybridized", "Naive", IMAGE_WEIGHTS),
        ("hybridized", "Round", IMAGE_WEIGHTS),
        ("static", "Naive", IMAGE_WEIGHTS),
        ("recurrent", "Naive", RECURRENT_WEIGHTS),
    ],
)
def test_every_byte_is_reported_and_the_pool_holds_what_the_device_gave(
    device: Path, tmp_path: Path, name: str, pool: str, weights: int
) -> None:
    printed, summary = recorded(device, tmp_path, name, MXNET_GPU_MEM_POOL_TYPE=pool)

    memory = summary.memory
    assert memory is not None
    assert (memory.mismatches, memory.violations) == (0, ())
    assert memory.events > 50
    assert memory.allocator_peak_bytes == memory.independent_peak_bytes
    assert memory.category_at_peak("unknown") == 0
    assert memory.roles_max[Role.WEIGHT] == memory.roles_max[Role.GRADIENT] == weights
    assert memory.roles_max[Role.OPTIMIZER_STATE] == 2 * weights
    assert memory.rounding_at_peak_bytes
    assert summary.recording.run.device_name == "a simulated GPU"
    assert summary.recording.run.precision_flags["NVIDIA_TF32_OVERRIDE"] == "0"
    assert printed["reserved"] == printed["taken"]
    whole = summary.device_memory
    assert whole is not None
    assert whole.allocator_cache_bytes is not None
    assert whole.allocator_cache_bytes + memory.peak_bytes == printed["reserved"][-1]


def test_without_a_pool_nothing_is_rounded_or_kept(device: Path, tmp_path: Path) -> None:
    _, summary = recorded(device, tmp_path, "hybridized", MXNET_GPU_MEM_POOL_TYPE="Unpooled")

    assert summary.memory is not None
    assert (summary.memory.mismatches, summary.memory.rounding_at_peak_bytes) == (0, 0)
    assert summary.device_memory is not None
    assert summary.device_memory.cache_at_end_bytes == 0


def test_a_work_space_of_cudnn_and_the_state_of_its_dropout_are_work_space(device: Path, tmp_path: Path) -> None:
    _, summary = recorded(device, tmp_path, "hybridized")

    assert summary.memory is not None
    assert summary.memory.roles_max[Role.WORKSPACE] == 64 * MIB + 4 * 1_769_472  # MXNet keeps four such states


@pytest.mark.parametrize("fusion", ["1", "0"])
def test_products_are_counted_and_layers_reported_whether_operators_are_fused_or_not(
    device: Path, tmp_path: Path, fusion: str
) -> None:
    _, summary = recorded(device, tmp_path, "hybridized", MXNET_USE_FUSION=fusion)

    recording = summary.recording
    spans = recording.named("kernels")[0].table("span")
    operators = spans[spans["kind"] == SpanKind.OPERATOR]
    names = [recording.strings[int(each)] for each in operators["name"]]
    assert ("_FusedOp" in names) == (fusion == "1")
    layers = {recording.strings[int(each)] for each in spans[spans["kind"] == SpanKind.LAYER]["name"]}
    assert {"0.one", "0.two", "0.norm", "0", "1", "2"} <= layers
    assert not {"layers of kernels", "counts of kernels"} & set(recording.missing)


def test_what_mxnet_says_when_the_device_is_full_is_known_as_that(device: Path, tmp_path: Path) -> None:
    path = tmp_path / "full.tbd"
    done = begun(device, path, "hybridized", 1024, SIMULATED_MEMORY_BYTES=300 * MIB)

    assert done.returncode != 0
    found = examine(load(path)).value
    assert found is not None
    assert found.said == "MXNetError: cudaMalloc retry failed: out of memory"
    assert found.asked_bytes is None


def test_a_device_that_mxnets_wheels_hold_no_code_for_is_refused(device: Path, tmp_path: Path) -> None:
    done = begun(device, tmp_path / "refused.tbd", "plain", SIMULATED_CAPABILITY=90)

    assert "MXNet's wheels hold no code for this GPU (compute capability 9.0)" in done.stderr


def test_what_mxnets_libraries_take_is_reported_without_what_its_pool_holds(device: Path) -> None:
    program = (
        "import numpy; vars(numpy).setdefault('bool', bool); from tbdprof.hooks.on_mxnet import context; "
        "from gpu.stand_in.on_mxnet.loops import taken; print(context.compute(0), taken())"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        env=stand_in.environment(device),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-2000:]
    held, taken = map(int, done.stdout.split())
    assert held == taken > 64 * MIB
