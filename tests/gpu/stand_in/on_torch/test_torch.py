"""Torch's CUDA build on a simulated device: its allocator, autograd's threads and its profiler are the real ones."""

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from gpu.stand_in.on_torch import stand_in

from tbdprof.analysis.memory.post_mortem import examine
from tbdprof.analysis.summary import summarize
from tbdprof.facts.counters import ALLOCATOR_RESERVED
from tbdprof.facts.file.reading import load
from tbdprof.facts.records import KernelKind
from tbdprof.facts.rows import Table
from tbdprof.results.memory import PostMortem
from tbdprof.results.summary import Summary

pytestmark = pytest.mark.skipif(stand_in.why_not() is not None, reason=stand_in.why_not() or "")
LOOPS = Path(__file__).with_name("loops.py")
CHECK = Path(__file__).parents[2] / "check.py"
MIB = 1 << 20
WEIGHTS = 4 * 521_960  # bytes of the transformer's parameters
LITTLE_BENEATH = {"SIMULATED_CONTEXT_BYTES": 64 * MIB, "SIMULATED_LIBRARY_BYTES": 8 * MIB}
LIMIT_S = 240.0


@dataclass(frozen=True)
class Run:
    """A recorded loop, and what torch's allocator counted."""

    path: Path
    counted: dict[str, int]
    summary: Summary

    def kernels(self) -> list[Table]:
        """Return what the device did in each kernels window."""
        return [window.table("kernel") for window in self.summary.recording.named("kernels")]


@pytest.fixture(scope="session")
def device(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the library that is the device."""
    return stand_in.make(tmp_path_factory.mktemp("device"))


def begun(device: Path, path: Path, name: str, **settings: object) -> "subprocess.CompletedProcess[str]":
    """Run a loop to its end, however that is."""
    command = [sys.executable, "-W", "error::RuntimeWarning", str(LOOPS), name, str(path)]
    environment = stand_in.environment(device, **settings)
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False)


def recorded(device: Path, folder: Path, name: str, **settings: object) -> Run:
    """Record a loop in a process of its own."""
    path = folder / f"{name}.tbd"
    done = begun(device, path, name, **settings)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "is not stood in for" not in done.stderr
    return Run(path, json.loads(done.stdout), summarize(load(path)))


@pytest.mark.parametrize(
    "name",
    ["plain", "autocast", "accumulated", "frozen", "emptied", "streams", "convolutions", "graph", "capturing"],
)
def test_every_byte_and_every_kernel_is_reported(device: Path, tmp_path: Path, name: str) -> None:
    run = recorded(device, tmp_path, name)

    memory = run.summary.memory
    assert memory is not None
    assert memory.mismatches == 0
    assert memory.events > 100
    assert memory.violations == ()
    assert memory.allocator_peak_bytes == memory.independent_peak_bytes
    # A captured graph's pool was larger before, and its generator's state is nobody's.
    assert memory.category_at_peak("unknown") == (16 if name == "graph" else 0)
    if name != "graph":
        assert memory.allocator_peak_bytes == run.counted["allocated_bytes.all.peak"]
    missing = run.summary.recording.missing
    assert not {"allocations", "existing blocks", "kernels", "kernels lost", "clock of kernels"} & set(missing)
    first, second = run.kernels()
    assert len(first) == len(second) > 100
    for rows in (first, second):
        assert ((rows["span"] < 0) == (rows["graph"] >= 0)).all()  # a graph is replayed outside any operator
        assert len(set(rows["thread"].tolist())) == 2  # autograd has one of its own
        assert (rows["launch_ns"] <= rows["start_ns"]).all()
        # Before it captures, torch fills its generator's state on the stream of the capture.
        assert set(rows["stream"].tolist()) == ({7, 13} if name in ("streams", "capturing") else {7})
        assert (rows["kind"] == KernelKind.COPY).any()


def test_weights_state_and_libraries_workspaces_are_what_arithmetic_says(device: Path, tmp_path: Path) -> None:
    run = recorded(device, tmp_path, "plain")

    memory = run.summary.memory
    assert memory is not None
    assert memory.category_at_peak("weights") == WEIGHTS
    assert memory.category_at_peak("workspace") == 65 * MIB  # cuBLAS 32 MiB, cublasLt 33
    window, *_ = run.summary.recording.named("memory")
    names = run.summary.recording.strings
    rows = window.table("sample")
    reserved = [int(row["value"]) for row in rows if names[int(row["counter"])] == ALLOCATOR_RESERVED]
    assert reserved[-1] == run.counted["reserved_bytes.all.current"]


def test_segments_that_grow_are_counted_as_mapped(device: Path, tmp_path: Path) -> None:
    run = recorded(device, tmp_path, "plain", PYTORCH_ALLOC_CONF="expandable_segments:True")

    assert run.summary.memory is not None
    assert run.summary.memory.mismatches == 0
    assert str(run.counted["reserved_bytes.all.current"]) in run.summary.missing["expandable segments"]


def test_an_allocator_that_the_profiler_does_not_follow_is_named(device: Path, tmp_path: Path) -> None:
    run = recorded(device, tmp_path, "plain", PYTORCH_ALLOC_CONF="backend:cudaMallocAsync")

    assert run.summary.memory is None
    assert "does not follow the allocator cudaMallocAsync" in run.summary.missing["memory"]


def test_kernels_that_are_lost_are_counted_and_nothing_else_is(device: Path, tmp_path: Path) -> None:
    lost = recorded(device, tmp_path, "plain", SIMULATED_LOSSES=5, SIMULATED_NESTED=1)

    assert "launches without their kernel (5)" in lost.summary.missing["kernels lost"]


def test_a_clock_that_is_off_is_reported(device: Path, tmp_path: Path) -> None:
    off = recorded(device, tmp_path, "plain", SIMULATED_SKEW_NS=-200_000)

    assert "times may be off by" in off.summary.missing["clock of kernels"]


def test_another_client_of_cupti_is_suspected(device: Path, tmp_path: Path) -> None:
    taken = recorded(device, tmp_path, "plain", SIMULATED_CUPTI_TAKEN=1)

    assert "another client of CUPTI may hold it" in taken.summary.missing["kernels"]
    assert taken.summary.memory is not None


@pytest.mark.parametrize(("name", "capacity", "separated"), [("plain", 144, False), ("growing", 252, True)])
def test_the_message_of_a_failed_allocation_is_understood(
    device: Path, tmp_path: Path, name: str, capacity: int, separated: bool
) -> None:
    path = tmp_path / "failed.tbd"
    done = begun(device, path, name, SIMULATED_MEMORY_BYTES=capacity * MIB, **LITTLE_BENEATH)

    assert "OutOfMemoryError" in done.stderr
    found = examine(load(path)).value
    assert isinstance(found, PostMortem)
    assert found.asked_bytes is not None
    assert found.asked_bytes == (16 * MIB if separated else found.asked_bytes) > 0
    assert found.capacity_bytes == capacity * MIB
    assert found.free_bytes is not None
    assert found.free_bytes < 20 * MIB
    assert found.separated == separated
    assert found.live is not None
    assert found.live["weights"] == WEIGHTS
    assert found.live_bytes is not None
    allocated = re.search(r"Of the allocated memory (\S+) MiB is allocated by PyTorch", found.said)
    assert allocated is not None
    assert f"{found.live_bytes / MIB:.2f}" == allocated[1]


def test_the_checks_of_a_card_run(device: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(CHECK), "--output", str(tmp_path), "--only", "levels", "--only", "transformer"]
    environment = stand_in.environment(device, TBDPROF_REHEARSE="cuda")
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False)

    assert done.returncode == 0, done.stdout + done.stderr[-2000:]


def test_a_batch_that_fits_is_found_on_a_card_that_is_too_small(device: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(CHECK), "--output", str(tmp_path), "--only", "out-of-memory"]
    settings = {"SIMULATED_MEMORY_BYTES": 1000 * MIB, **LITTLE_BENEATH}
    environment = stand_in.environment(device, TBDPROF_REHEARSE="cuda", **settings)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False)

    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
