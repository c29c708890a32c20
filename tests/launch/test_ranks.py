"""Scripts of several processes: each rank has a recording of its own, and none waits for tbdprof."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

from tbdprof.analysis.summary import summarize
from tbdprof.errors import UsageError
from tbdprof.facts.file.reading import load
from tbdprof.facts.ranks import Rank, files_of, path_of
from tbdprof.facts.recording import Recording
from tbdprof.facts.records import Role
from tbdprof.hooks.ranks import own_rank
from tbdprof.launch import script

ROOT = Path(__file__).parents[2]
WIDE, NARROW, SLEEP_S = 256, 8, 0.15
PARAMETERS = WIDE * WIDE + WIDE + WIDE * NARROW + NARROW
CLUSTER = {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"]}
VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "TF_CONFIG", "DMLC_ROLE", "DMLC_NUM_WORKER", "DMLC_WORKER_ID")

TRAINS = f"""
import os, sys, time
import torch
from torch import distributed, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

os.environ["GLOO_SOCKET_IFNAME"] = "lo"
distributed.init_process_group("gloo")
rank = distributed.get_rank()

def net():
    return nn.Sequential(nn.Linear({WIDE}, {WIDE}), nn.ReLU(), nn.Linear({WIDE}, {NARROW}))

def train(model, steps):
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for _ in range(steps):
        if rank:
            time.sleep({SLEEP_S})
        optimizer.zero_grad()
        model(torch.ones(4, {WIDE})).sum().backward()
        optimizer.step()
        yield
"""
# `tbdprof run` records the first loop, `tbdprof.profile` the second one; then rank 1 kills itself in a window.
ENDS = """
import tbdprof

list(train(DistributedDataParallel(net()), 20))
model = net()
for layer in (model[0], model[2], model):
    fully_shard(layer)
with tbdprof.profile(model, warmup=2, steps=2, output="own.tbd") as prof:
    for number, _ in enumerate(train(model, 18)):
        prof.step(4)
        if (rank, number) == (1, 15):
            os.kill(os.getpid(), 9)
"""
SUPPORT = ROOT / "tests" / "support"
PEAKS = f"import sys; sys.path.append({str(SUPPORT)!r}); import known_peaks; known_peaks.use()"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """Profile a script in two processes, of which one dies; return its folder, and what was printed."""
    if find_spec("torch") is None:
        pytest.skip("needs torch")
    folder = tmp_path_factory.mktemp("ranks")
    (folder / "train.py").write_text(PEAKS + TRAINS + ENDS)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"]
    options = ["--warmup", "2", "--steps", "2", "-o", "a.tbd"]
    return folder, subprocess.run(
        [sys.executable, "-m", "tbdprof", "run", *options, "--", *launcher],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )


def recordings(folder: Path, name: str) -> list[Recording]:
    """Return the recordings of both ranks."""
    return [load(folder / f"{name}.rank{rank}.tbd") for rank in range(2)]


def steps(recording: Recording) -> list[list[int]]:
    """Return the steps of each window."""
    return [window.table("step")["index"].tolist() for window in recording.windows]


def test_each_rank_under_torchrun_has_a_recording_with_the_same_steps_in_each_window(trained):
    folder, done = trained

    assert done.returncode == 1, done.stderr  # torchrun's, of which a process was killed
    first, second = recordings(folder, "a")
    assert [(each.run.rank, each.run.world_size, each.run.complete) for each in (first, second)] == [
        (0, 2, True),
        (1, 2, True),
    ]
    assert steps(first) == steps(second)
    assert steps(first)[:5] == [[0, 1], [2, 3], [4, 5, 6, 7], [9, 10], [11, 12, 13, 14]]  # 8 and 15 are caught up in
    left = [each.name for pattern in ("a*", ".a*") for each in folder.glob(pattern)]
    assert sorted(left) == ["a.rank0.tbd", "a.rank1.tbd"]


@pytest.mark.parametrize(("name", "times"), [("a", 1), ("own", 3)])
def test_memory_and_what_is_sent_are_exact_in_each_rank(trained, name: str, times: int):
    # DDP reduces all gradients once. FSDP2 gathers all weights twice and reduces all gradients once.
    for recording in recordings(trained[0], name):
        summary = summarize(recording)

        assert summary.memory is not None
        assert summary.memory.roles_at_peak[Role.UNKNOWN] == 0
        assert summary.memory.mismatches == 0 or name == "own"  # when FSDP2's threads free what they sent is not known
        assert summary.step_time is not None
        assert summary.step_time.communication is not None
        assert summary.step_time.communication.sent_bytes == times * 4 * PARAMETERS


def test_the_other_rank_is_no_other_process(trained):
    for recording in recordings(trained[0], "a"):
        cpu = summarize(recording).cpu

        assert cpu is not None
        assert cpu.ranks is not None
        assert cpu.ranks > 0  # it trains, too


def test_a_rank_that_is_killed_leaves_the_windows_that_ended_and_so_do_the_others(trained):
    folder, done = trained

    for rank, recording in enumerate(recordings(folder, "own")):
        assert f"tbdprof: rank {rank} of 2 records into own.rank{rank}.tbd\n" in done.stderr
        assert not recording.run.complete
        assert [(window.name, window.state) for window in recording.windows[:5]] == [
            (name, "complete") for name in ("warmup", "clean", "memory", "clean", "kernels")
        ]


def test_the_report_of_a_script_compares_its_ranks_and_names_the_slow_one(trained):
    done = trained[1]

    assert done.stdout.startswith("2 of 2 ranks\n")
    text = " ".join(done.stdout.split())
    assert " the slowest is rank 1, by " in text
    assert "; for it waits rank 0 (" in text
    names = "a.rank0.tbd, a.rank1.tbd"
    assert f"tbdprof: recorded in {names}; of one rank: tbdprof report a.rank0.tbd\n" in done.stderr


@pytest.mark.parametrize(
    ("variables", "framework", "rank"),
    [
        ({}, "torch", None),
        ({"RANK": "0", "WORLD_SIZE": "1"}, "torch", None),
        ({"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}, "torch", Rank(3, 4)),
        ({"LOCAL_RANK": "1", "WORLD_SIZE": "2"}, "torch", Rank(1, 2)),
        ({"RANK": "4", "WORLD_SIZE": "4"}, "torch", None),
        ({"RANK": "a", "WORLD_SIZE": "4"}, "torch", None),
        ({"DMLC_ROLE": "worker", "DMLC_NUM_WORKER": "3", "DMLC_WORKER_ID": "2"}, "mxnet", Rank(2, 3)),
        ({"DMLC_ROLE": "server", "DMLC_NUM_WORKER": "3", "DMLC_WORKER_ID": "2"}, "mxnet", None),
        ({"TF_CONFIG": json.dumps({"cluster": CLUSTER, "task": {"type": "worker", "index": 1}})}, "tensorflow", (2, 3)),
        ({"TF_CONFIG": json.dumps({"cluster": CLUSTER, "task": {"type": "ps", "index": 0}})}, "tensorflow", None),
        ({"TF_CONFIG": "[]"}, "tensorflow", None),
    ],
)
def test_a_rank_is_what_the_launcher_says(monkeypatch, variables: dict[str, str], framework: str, rank):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    assert own_rank(framework) == rank


def test_the_process_group_of_torch_goes_before_the_launcher(monkeypatch):
    group = SimpleNamespace(
        is_available=lambda: True, is_initialized=lambda: True, get_rank=lambda: 1, get_world_size=lambda: 3
    )
    monkeypatch.setitem(sys.modules, "torch.distributed", group)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")

    assert own_rank("torch") == Rank(1, 3)


@pytest.mark.parametrize(
    ("given", "rank", "own"),
    [
        ("a.tbd", 1, "a.rank1.tbd"),
        ("runs/a", 12, "runs/a.rank12"),
        ("a.rank1.tbd", 1, "a.rank1.tbd"),
        ("rank_01.tbd", 1, "rank_01.tbd"),
        ("rank1.tbd", 11, "rank1.rank11.tbd"),
        ("a_1.tbd", 1, "a_1.rank1.tbd"),
    ],
)
def test_a_ranks_file_is_named_after_it_unless_the_name_says_it_already(given: str, rank: int, own: str):
    assert path_of(Path(given), rank) == Path(own)


def test_the_files_of_ranks_are_found_by_their_common_name(tmp_path: Path):
    for name in ("a.rank10.tbd", "a.rank2.tbd", "a.rank02.tbd", "a.rankx.tbd", "b.rank1.tbd", ".a.rank1.tbd.part"):
        (tmp_path / name).touch()

    expected = {2: tmp_path / "a.rank2.tbd", 10: tmp_path / "a.rank10.tbd"}
    assert files_of(tmp_path / "a.tbd") == files_of(tmp_path / "a") == expected
    assert files_of(tmp_path / "none" / "a.tbd") == {}


def test_older_files_of_ranks_are_replaced_only_by_force(tmp_path: Path):
    (tmp_path / "a.rank1.tbd").touch()

    with pytest.raises(UsageError, match=r"a\.rank1\.tbd exists: choose another name with -o, or overwrite"):
        script.run(["true"], tmp_path / "a.tbd")
    assert script.run(["true"], tmp_path / "a.tbd", force=True).paths == ()


def test_a_run_that_a_launcher_starts_in_each_rank_records_into_the_ranks_file(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    (tmp_path / "a.rank0.tbd").touch()  # the other rank's
    asked = tmp_path / "asked"
    outcome = script.run(["sh", "-c", f'printf %s "$TBDPROF_ATTACH" > {asked}'], tmp_path / "a.tbd")

    order = json.loads(asked.read_text())
    assert (outcome.code, order["path"], order["rank"]) == (0, str(tmp_path / "a.rank1.tbd"), [1, 2])
