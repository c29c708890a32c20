"""A sweep on a real Ray cluster: two machines, both of them nodes on this one; one of them is killed."""

import json
import os
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

pytest.importorskip("ray")

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RECORDING = ROOT / "tests/fixtures/format-5-torch.tbd"
SIZES = ("1", "2", "4", "8", "16", "32")
SCRIPT = ["--", "fake", "--batch", "{batch}"]
HAND_OVER_S = 2.0  # then the machine that ended a point has another one
LIMIT_S = 180  # on a machine that others use, too


class Machines:
    """A cluster of a head that runs no points and two machines, and the log of the points that ran on them."""

    def __init__(self, folder: Path) -> None:
        from ray.cluster_utils import Cluster

        self.log = folder / "ran"
        self.cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        self.nodes = [self.cluster.add_node(num_cpus=2, node_name=name) for name in ("one", "two")]

    @property
    def ran(self) -> list[tuple[str, str]]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [(event, name) for event, name, _ in map(json.loads, lines)]

    def lose_one(self) -> None:
        """Kill the first machine, and wait until its processes are gone: Ray kills them one after another."""
        (daemon,) = self.nodes[0].all_processes["raylet"]
        processes = psutil.Process(daemon.process.pid).children(recursive=True)
        self.cluster.remove_node(self.nodes[0], allow_graceful=False)
        until(lambda: not any(map(is_at_work, processes)))


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """Return a cluster, which the tests below use up."""
    folder = tmp_path_factory.mktemp("cluster")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join((str(ROOT), str(HERE / "ray_points"))))
        patch.setenv("SLOW_POINTS", os.pathsep.join((str(RECORDING), str(folder / "ran"))))
        patch.delenv("OMP_NUM_THREADS", raising=False)
        found = Machines(folder)
        yield found
        found.cluster.shutdown()


def begun(folder: Path, *words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "tbdprof", "sweep", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def is_at_work(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def until(is_true: Callable[[], object]) -> None:
    end = time.monotonic() + LIMIT_S
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("127.0.0.1:{free}", "no Ray cluster answers at 127.0.0.1:"),
        ("nonsense", "give HOST:PORT"),
        ("", "no Ray cluster runs here: start one with `ray start --head`"),
    ],
)
def test_an_address_without_a_cluster_is_one_line(tmp_path: Path, address: str, message: str) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
    on = ":".join(filter(None, ("ray", address.format(free=free))))

    process = begun(tmp_path, "-o", "s", "--set", "batch=1", "--on", on, *SCRIPT)
    out, complaints = process.communicate(timeout=LIMIT_S)

    assert (process.returncode, out, complaints.count("\n")) == (2, "", 1)
    assert message in complaints


def ended_on(sweep: Path) -> list[str]:
    return [json.loads(path.read_text())["machine"] for path in sweep.glob("points/*.json")]


def test_a_sweep_ends_with_all_points_though_a_machine_is_lost(tmp_path: Path, machines: Machines) -> None:
    on = f"ray:{machines.cluster.address}"
    process = begun(tmp_path, "-o", "s", "--set", f"batch={','.join(SIZES)}", "--on", on, "--json", *SCRIPT)
    until(lambda: "one" in ended_on(tmp_path / "s"))
    held = Path(f"{machines.log}.held")
    held.touch()
    until(lambda: machines.ran[-1][0] == "begins")
    time.sleep(HAND_OVER_S)

    machines.lose_one()
    held.unlink()
    out, complaints = process.communicate(timeout=LIMIT_S)

    assert process.returncode == 0, complaints
    points = json.loads(out)["points"]
    assert [point["settings"]["batch"] for point in points] == [*SIZES]
    assert {point["end"] for point in points} == {"finished"}
    assert {point["machine"] for point in points} == {"one", "two"}
    assert complaints.count("its machine was lost; it runs again") == 1
    ended = Counter(name for event, name in machines.ran if event == "ends")
    assert sorted(ended.values()) == [1] * 6  # none ran to its end twice
    assert all(json.loads(line)[2] is None for line in machines.log.read_text().splitlines())  # not as Ray would set it
    # Both machines are this one: no point began before the one on the other had ended, or been killed.
    killed = {
        name for name, count in Counter(name for event, name in machines.ran if event == "begins").items() if count > 1
    }
    events = [event for event, name in machines.ran if name not in killed]
    assert events == ["begins", "ends"] * (len(events) // 2)


def test_a_head_that_goes_away_is_one_line_and_the_sweep_goes_on_without_it(tmp_path: Path, machines: Machines) -> None:
    on = f"ray:{machines.cluster.address}"
    process = begun(tmp_path, "-o", "s", "--set", f"batch={','.join(SIZES)}", "--on", on, *SCRIPT)
    until(lambda: ended_on(tmp_path / "s"))

    machines.cluster.shutdown()
    out, complaints = process.communicate(timeout=LIMIT_S)

    last = complaints.splitlines()[-1]
    assert (process.returncode, out) == (1, "")
    assert last.startswith("tbdprof: the Ray cluster went away (s/ray.log has what Ray said); ")
    assert last.endswith(f"go on with: tbdprof sweep -o s --on {on}")
