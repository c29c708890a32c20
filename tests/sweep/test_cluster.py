"""A sweep on a cluster: what a point asks for, and what is told where the process that speaks with Ray ends.

No Ray is needed; tests/libraries/test_ray.py runs a sweep on a real cluster.
"""

import json
import sys
from pathlib import Path

import pytest

from tbdprof.collect import fresh
from tbdprof.errors import TbdprofError, UnavailableError, UsageError
from tbdprof.launch.request import RunRequest
from tbdprof.results.sweep import End
from tbdprof.sweep.cluster import following
from tbdprof.sweep.cluster.following import Cluster, cluster
from tbdprof.sweep.cluster.needs import Machine, Need, need, slots
from tbdprof.sweep.folder import Folder, opened
from tbdprof.sweep.outcome import Outcome
from tbdprof.sweep.plan import Plan, Point, Script

SCRIPT = Script(("python", "train.py", "{batch}"))
SMALL, LARGE, CARDS = Machine(8, 0), Machine(16, 0), Machine(32, 4)


def model(device: str = "auto", threads: int | None = None) -> RunRequest:
    return RunRequest("resnet50", "torch", device, threads=threads)


@pytest.mark.parametrize(
    ("program", "machines", "gpus", "expected"),
    [
        (model(), [SMALL, LARGE], None, Need(8, 0)),  # all of the smallest: two of them would disturb each other
        (model(threads=12), [SMALL, LARGE], None, Need(16, 0)),
        (model(), [SMALL, CARDS], None, Need(1, 1)),
        (model("cuda", 4), [SMALL, CARDS], 2, Need(4, 2)),
        (model("cpu"), [SMALL, CARDS], None, Need(8, 0)),
        (SCRIPT, [SMALL], None, Need(8, 0)),
        (SCRIPT, [CARDS], None, Need(1, 1)),
        (SCRIPT, [CARDS], 0, Need(32, 0)),
        (SCRIPT, [Machine(0, 0), SMALL], None, Need(8, 0)),  # a head that runs no tasks
    ],
)
def test_a_point_asks_for_its_device(
    program: RunRequest | Script, machines: list[Machine], gpus: int | None, expected: Need
) -> None:
    assert need(program, machines, gpus) == expected


@pytest.mark.parametrize(
    ("program", "machines", "gpus", "message"),
    [
        (model("cuda"), [SMALL], None, "no machine of the Ray cluster has 1 cores and 1 GPUs"),
        (model(threads=9), [SMALL], None, "has 9 cores for a point: the largest has 8 cores and 0 GPUs"),
        (SCRIPT, [CARDS], 5, "has 1 cores and 5 GPUs"),
        (SCRIPT, [], None, "the largest has nothing"),
        (model("cuda:1"), [CARDS], None, "type --device cuda"),
    ],
)
def test_what_no_machine_has_is_refused(
    program: RunRequest | Script, machines: list[Machine], gpus: int | None, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        need(program, machines, gpus)


def test_one_point_at_a_time_runs_on_a_cpu_and_one_on_each_gpu() -> None:
    assert slots(Need(8, 0), [SMALL, LARGE]) == 2
    assert slots(Need(1, 1), [SMALL, CARDS]) == 4
    assert slots(Need(1, 2), [CARDS]) == 2
    assert slots(Need(12, 0), [SMALL]) == 0


@pytest.mark.parametrize(
    ("text", "gpus", "message"),
    [("slurm", None, "--on is 'slurm': give ray"), (None, 1, "--gpus is for a cluster: type --on ray")],
)
def test_what_is_no_cluster_is_refused(text: str | None, gpus: int | None, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        cluster(text, gpus)


def test_a_cluster_goes_by_the_words_that_were_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "find_spec", lambda name: name)

    found = [cluster(text, gpus) for text, gpus in (("ray", None), ("ray:head:6379", 2), ("ray://head:10001", None))]

    assert found == [Cluster(), Cluster("head:6379", 2), Cluster("ray://head:10001")]
    assert [each.option for each in found if each] == [
        "--on ray",
        "--on ray:head:6379 --gpus 2",
        "--on ray:ray://head:10001",
    ]
    monkeypatch.setattr(following, "find_spec", lambda name: None)
    with pytest.raises(UnavailableError, match=r"pip install 'tbdprof\[ray\]'"):
        cluster("ray", None)


class Watched:
    """A watcher that keeps what it is told."""

    def __init__(self) -> None:
        self.seen: list[object] = []

    def begins(self, point: Point, ended: int, total: int | None, at_once: int = 1) -> None:
        self.seen.append((point.name, ended, total, at_once))

    def lost(self, point: Point) -> None:
        self.seen.append((point.name, "lost"))

    def ends(self, point: Point, outcome: Outcome) -> None:
        self.seen.append((point.name, outcome.end))


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return opened(tmp_path / "s", Plan(SCRIPT, {"batch": ("1", "2")}))


def told(monkeypatch: pytest.MonkeyPatch, folder: Folder, lines: list[object], code: int) -> tuple[list[object], str]:
    """Return what a watcher sees, and the error that is raised, if a driver tells some lines and ends with a code."""
    text = "".join(f"{each if isinstance(each, str) else json.dumps(each)}\n" for each in lines)
    program = f"import sys; sys.stdout.write({text!r}); sys.stdout.flush(); sys.exit({code})"
    monkeypatch.setattr(fresh, "command", lambda module, argument: [sys.executable, "-c", program])
    watched = Watched()
    try:
        following.run(folder, watched, Cluster("head:1"))
    except TbdprofError as error:
        return watched.seen, f"{error.exit_code}: {error}"
    return watched.seen, ""


def test_what_the_driver_tells_reaches_the_watcher(monkeypatch: pytest.MonkeyPatch, folder: Folder) -> None:
    point = {"name": "batch=1", "settings": {"batch": "1"}}
    folder.keep(Point(**point), Outcome(End.OUT_OF_MEMORY))  # type: ignore[arg-type]
    lines = [
        {"event": "begins", "point": point, "ended": 0, "total": 2, "at_once": 2},
        "INFO: a line of Ray's",
        "7",
        {"event": "lost", "point": point},
        {"event": "ends", "point": point},
    ]

    seen, error = told(monkeypatch, folder, lines, 0)

    assert seen == [("batch=1", 0, 2, 2), ("batch=1", "lost"), ("batch=1", End.OUT_OF_MEMORY)]
    assert error == ""


def test_an_error_of_the_driver_is_raised(monkeypatch: pytest.MonkeyPatch, folder: Folder) -> None:
    _, error = told(monkeypatch, folder, [{"event": "fails", "text": "no answer", "code": 2}], 2)

    assert error == "2: no answer"


def test_a_driver_that_dies_means_that_the_cluster_went_away(monkeypatch: pytest.MonkeyPatch, folder: Folder) -> None:
    _, error = told(monkeypatch, folder, [], 9)

    assert error.startswith("1: the Ray cluster went away (")
    assert error.endswith(f"; go on with: tbdprof sweep -o {folder.path} --on ray:head:1")
