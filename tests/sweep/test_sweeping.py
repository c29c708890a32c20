"""`tbdprof sweep` as a whole: what runs, what is kept, how it goes on; its points train nothing (fake_points)."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tbdprof.sweep.folder import locked, opened
from tbdprof.sweep.plan import Plan, Script

ROOT = Path(__file__).parents[2]
RECORDING = ROOT / "tests/fixtures/format-5-torch.tbd"
Typed = Callable[..., tuple[int, str, str]]
SCRIPT = ["--", "fake", "--batch", "{batch}"]


class Sweeps:
    """Sweeps in one folder, and what they ran."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "ran"
        path = os.pathsep.join((str(ROOT), str(Path(__file__).parent)))
        self._environment = {**os.environ, "PYTHONPATH": path}

    def command(self, *words: str) -> list[str]:
        return [sys.executable, str(Path(__file__).with_name("fake_points.py")), str(RECORDING), str(self.log), *words]

    def begin(self, *words: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            self.command(*words),
            cwd=self.folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str) -> tuple[int, str, str]:
        process = self.begin(*words)
        out, complaints = process.communicate(timeout=120)
        return process.returncode, out, complaints

    @property
    def ran(self) -> list[str]:
        return self.log.read_text().split() if self.log.exists() else []


@pytest.fixture
def sweeps(tmp_path: Path) -> Sweeps:
    return Sweeps(tmp_path)


def until(is_true: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_each_point_runs_once_and_the_report_has_all(sweeps: Sweeps) -> None:
    code, out, complaints = sweeps.run(
        "-o", "s", "--set", "batch=1,2,4", "--set", "n=1", "--json", *SCRIPT, "{n}"[:0] or "1"
    )

    assert code == 2  # n has no place in the command
    assert "put {n} where its value goes" in json.loads(out)["error"] + str(json.loads(out)["hint"])
    assert (complaints, sweeps.ran) == ("", [])

    code, out, _ = sweeps.run("-o", "s", "--set", "batch=1,2,4", "--json", *SCRIPT)

    report = json.loads(out)
    assert code == 0
    assert sweeps.ran == ["batch=1", "batch=2", "batch=4"]
    assert [point["name"] for point in report["points"]] == sweeps.ran
    assert all(point["end"] == "finished" and point["figures"]["peak_bytes"] > 0 for point in report["points"])
    assert report["to_come"] == 0
    assert report["knees"][0]["knee"]["measured"] == [1, 2, 4]


def test_a_search_goes_on_and_ends_where_a_point_fails(sweeps: Sweeps) -> None:
    sweeps.run("-o", "s", "--set", "batch=auto", "--max-batch-size", "4", *SCRIPT)
    code, out, _ = sweeps.run("-o", "s", "--set", "batch=auto", "--max-batch-size", "13", "--json", *SCRIPT)

    assert sweeps.ran == [f"batch={size}" for size in (1, 2, 4, 8, 13)]
    assert code == 1
    assert [point["end"] for point in json.loads(out)["points"]][-1] == "failed"


def test_what_has_ended_is_not_run_again_and_new_values_are(sweeps: Sweeps) -> None:
    sweeps.run("-o", "s", "--set", "batch=1,2", *SCRIPT)
    code, first, _ = sweeps.run("-o", "s")
    assert (code, sweeps.ran) == (0, ["batch=1", "batch=2"])

    code, second, _ = sweeps.run("-o", "s", "--set", "batch=2,4", *SCRIPT)

    assert code == 0
    assert sweeps.ran == ["batch=1", "batch=2", "batch=4"]
    assert len(second.splitlines()) > len(first.splitlines())


def test_failures_and_full_memory_keep_no_other_point_from_its_turn(sweeps: Sweeps) -> None:
    code, out, complaints = sweeps.run("-o", "s", "--set", "batch=13,14,20,1", *SCRIPT)

    assert code == 1
    assert sweeps.ran == ["batch=13", "batch=14", "batch=20", "batch=1"]
    assert "batch=13: failed (unlucky)" in out
    assert "batch=14: failed (its process ended with 3: no word)" in out
    assert "batch=20: out of memory (none left)" in out
    assert "tbdprof: batch=20: out of memory" in complaints

    sweeps.run("-o", "s")

    assert sweeps.ran[4:] == ["batch=13", "batch=14"]  # what failed is tried again; what does not fit is a result


def test_a_sweep_that_is_killed_goes_on_where_it_stopped(sweeps: Sweeps) -> None:
    process = sweeps.begin("-o", "s", "--set", "batch=1,7,2", *SCRIPT)
    until(lambda: sweeps.ran == ["batch=1", "batch=7"])
    process.kill()
    process.communicate()
    (sweeps.folder / "go").touch()

    code, out, _ = sweeps.run("-o", "s")

    assert code == 0
    assert sweeps.ran == ["batch=1", "batch=7", "batch=7", "batch=2"]
    assert len([line for line in out.splitlines() if "samples/s" in line]) >= 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_sweep_that_is_interrupted_says_how_it_goes_on(sweeps: Sweeps, number: int) -> None:
    process = sweeps.begin("-o", "s", "--set", "batch=1,7,2", *SCRIPT)
    until(lambda: sweeps.ran == ["batch=1", "batch=7"])
    process.send_signal(number)
    _, complaints = process.communicate(timeout=60)

    assert process.returncode == 128 + number
    assert complaints.rstrip().endswith("; 1 point ended; go on with: tbdprof sweep -o s")
    assert not list((sweeps.folder / "s/points").glob("batch=7.json"))


def test_one_sweep_at_a_time_in_a_folder(sweeps: Sweeps) -> None:
    process = sweeps.begin("-o", "s", "--set", "batch=7", *SCRIPT)
    until(lambda: sweeps.ran)

    code, _, complaints = sweeps.run("-o", "s")

    (sweeps.folder / "go").touch()
    process.communicate()
    assert (code, process.returncode, sweeps.ran) == (2, 0, ["batch=7"])
    assert "a sweep is running in s: wait for it" in complaints


def test_the_largest_that_fits_is_found(sweeps: Sweeps) -> None:
    code, out, _ = sweeps.run("-o", "s", "--set", "batch=auto", "--json", *SCRIPT)

    sizes = [int(name.partition("=")[2]) for name in sweeps.ran]
    assert code == 0
    assert sizes == [1, 2, 4, 8, 16, 32, 20, 19]
    assert max(p["settings"]["batch"] for p in json.loads(out)["points"] if p["end"] == "finished") == 19


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-o", "none"], "none is no folder"),
        (["-o", "other"], "other holds no sweep"),
        (["-o", "other", "--set", "batch=1", *SCRIPT], "other exists and holds no sweep"),
        (["-o", "damaged"], "damaged/sweep.json is no plan of a sweep"),
        (["-o", "s", "--set", "batch=auto,2", *SCRIPT], "batch is auto and has values"),
        (["-o", "s", "--set", "batch=1", "--max-batch-size", "4", *SCRIPT], "--max-batch-size is the limit of auto"),
        (["-o", "s", "--set", "batch=1", "--set", "batch=2", *SCRIPT], "batch is given twice"),
        (["-o", "s", *SCRIPT], "nothing to sweep: add --set"),
        (["-o", "s", "--batch-size", "1", *SCRIPT], "--batch-size is for models"),
        (["-o", "s", "--set", "batch=1", "--threads", "2", *SCRIPT], "--threads is for the models of the suite"),
        (["-o", "s", "--set", "batch=1", "--"], "nothing after --"),
        (["-o", "s", "resnet50"], "no framework given"),
        (["-o", "s", "resnet51", "--framework", "torch"], "did you mean resnet50"),
        (["-o", "s", "resnet50", "--framework", "torch,jax"], "'jax'"),
        (["-o", "s", "resnet50", "--framework", "torch", "--batch-size", "1,x"], "batch_size is 'x'"),
        (["-o", "s", "--batch-size", "1"], "no model given"),
        (["-o", "s", "resnet50", "--framework", "torch", "--batchsize", "2"], "did you mean --batch-size?"),
    ],
)
def test_what_cannot_be_swept_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    typed: Typed,
    words: list[str],
    message: str,
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file").touch()
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged/sweep.json").write_text('{"format": 1, "axes": 5}')
    monkeypatch.chdir(tmp_path)

    code, out, complaints = typed("sweep", *words)

    assert code == (1 if "damaged" in words else 2)
    assert (out, complaints.count("\n")) == ("", 1)
    assert message in complaints
    assert not list(tmp_path.glob("*/points/*"))


def test_a_point_with_a_damaged_recording_is_told_and_the_others_are_reported(sweeps: Sweeps) -> None:
    sweeps.run("-o", "s", "--set", "batch=1,2", *SCRIPT)
    (sweeps.folder / "s/points/batch=2.tbd").write_bytes(b"no recording")

    code, out, _ = sweeps.run("-o", "s")

    assert code == 1
    assert "batch=2: failed (" in out
    assert sweeps.ran == ["batch=1", "batch=2"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["none", "-o", "out"], "none is no folder"),
        (["empty", "-o", "out"], "no point of empty has a recording: run it first"),
        (["lr", "-o", "out"], "lr sweeps no batch size: name the script's setting batch"),
        (["empty", "empty", "empty", "-o", "out"], "3 sweeps: give one, or two"),
    ],
)
def test_what_cannot_be_drawn_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    typed: Typed,
    words: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, setting in (("empty", "batch"), ("lr", "lr")):
        opened(Path(name), Plan(Script(("fake", f"{{{setting}}}")), {setting: ("1",)}))

    code, out, complaints = typed("figures", *words)

    assert (code, out, complaints.count("\n")) == (2, "", 1)
    assert message in complaints
    assert not Path("out").exists()


def test_the_figures_of_a_sweep_are_files(sweeps: Sweeps, monkeypatch: pytest.MonkeyPatch, typed: Typed) -> None:
    pytest.importorskip("matplotlib")
    sweeps.run("-o", "s", "--set", "batch=1,20", *SCRIPT)
    monkeypatch.chdir(sweeps.folder)

    code, out, _ = typed("figures", "s", "s", "-o", "out", "--format", "svg")

    assert code == 0
    assert sorted(out.split()) == sorted(str(path) for path in Path("out").iterdir())
    assert {f"out/figure-{number}.svg" for number in (4, 5, 6, 7, 8)} < {*out.split()}
    assert "× marks a batch that ran out of memory" in Path("out/captions.md").read_text()


def test_a_plan_that_cannot_be_written_leaves_a_folder_that_can_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: Typed
) -> None:
    monkeypatch.chdir(tmp_path)

    def full(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as on_full_disk:
        on_full_disk.setattr(Path, "write_text", full)
        code, _, complaints = typed("sweep", "-o", "s", "--set", "batch=1", *SCRIPT)

    assert (code, complaints) == (
        2,
        "tbdprof: cannot write s: No space left on device; choose another place with -o\n",
    )
    with locked(Path("s")):
        assert opened(Path("s"), Plan(Script(("fake", "{batch}")), {"batch": ("1",)})).points.is_dir()
