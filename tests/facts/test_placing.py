"""A new recording at a path: what is there stays until there is more to keep, and one process at a time writes."""

import os
import resource
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from fake_loop import SHORT, profiler, train
from make import run

from tbdprof.analysis.summary import summarize
from tbdprof.errors import UsageError
from tbdprof.facts.file import placing
from tbdprof.facts.file.placing import ROOM_BYTES, claim, save, write_anew
from tbdprof.facts.file.reading import load
from tbdprof.facts.recorder import Recorder
from tbdprof.facts.recording import STILL_RUNNING, Recording, Window
from tbdprof.facts.rows import KINDS, Table
from tbdprof.report import export, terminal

ROOT = Path(__file__).parents[2]
FULL = "the disk is full (File too large)"
# A process that records into the file that is named first, says what it did, and waits in what is named second.
RECORDS = """
import sys, time
from pathlib import Path
import numpy as np
from tbdprof.facts.file.placing import claim
from tbdprof.facts.recorder import Recorder
from tbdprof.facts.recording import STILL_RUNNING
from tbdprof.facts.records import Run
from tbdprof.facts.rows import KINDS

def at(point):
    if point == sys.argv[2]:
        print(point, flush=True)
        time.sleep(600)

held = claim(Path(sys.argv[1]), force=True)
at("claimed")
recorder = Recorder(Run("toy", "torch", ended_by=STILL_RUNNING), Path(sys.argv[1]))
rows = np.zeros(3, KINDS["step"])
rows["start_ns"], rows["end_ns"] = (0, 2, 4), (1, 3, 5)
for name in ("warmup", "clean", "memory"):
    with recorder.window(name) as window:
        at(f"in {name}")
        recorder.append(window, {"step": rows})
        at(f"end of {name}")
"""


def steps(count: int = 3) -> Table:
    """Return steps with times that cannot be compressed."""
    rows = np.zeros(count, KINDS["step"])
    rows["start_ns"], rows["end_ns"] = (
        np.random.default_rng(0).integers(1, 1 << 40, (count, 2)).cumsum().reshape(-1, 2).T
    )
    return rows


def older(path: Path) -> bytes:
    """Put a recording of an older run at a path, and return what is in its file."""
    save(Recording(run(model="older"), [Window(0, "clean", "complete", {"step": steps()})]), path)
    return path.read_bytes()


def names(folder: Path) -> list[str]:
    return sorted(item.name for item in folder.iterdir())


@pytest.fixture
def recording(tmp_path: Path) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Return a function that starts a process which records, and waits until it is at a point."""
    started: list[subprocess.Popen[str]] = []

    def start(point: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", RECORDS, str(tmp_path / "a.tbd"), point]
        settings = {**os.environ, "PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(command, env=settings, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == f"{point}\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_a_recording_takes_its_place_with_its_first_record(tmp_path: Path):
    recorder = Recorder(run(), tmp_path / "a.tbd")
    with recorder.window("warmup") as window:
        assert not (tmp_path / "a.tbd").exists()
        recorder.append(window, {"step": steps()})
        assert names(tmp_path) == ["a.tbd"]
    recorder.close()

    assert names(tmp_path) == ["a.tbd"]
    assert len(load(tmp_path / "a.tbd").windows[0].table("step")) == 3


def test_of_a_run_without_a_step_nothing_is_left(tmp_path: Path):
    recorder = Recorder(run(), tmp_path / "a.tbd")
    with recorder.window("warmup"):
        pass
    recorder.close()

    assert names(tmp_path) == []
    assert recorder.recording.missing == {"file": "no step was recorded, so there is no file"}


def test_an_older_recording_stays_until_the_new_one_is_past_its_warmup(tmp_path: Path):
    path = tmp_path / "a.tbd"
    before = older(path)
    prof, hook = profiler(SHORT, path=path)
    seen = []
    with claim(path, force=True) as claimed, prof:
        for _ in range(6):
            train(prof, hook.clock, 1)
            seen.append((path.read_bytes() == before, claimed.is_kept))

    assert seen == [(True, False)] * 2 + [(False, True)] * 4
    assert load(path).run.model == "toy"
    assert names(tmp_path) == ["a.tbd"]


def test_a_run_that_ends_in_its_warmup_leaves_the_older_recording_and_says_so(tmp_path: Path):
    path = tmp_path / "a.tbd"
    before = older(path)
    prof, hook = profiler(SHORT, path=path)
    with claim(path, force=True), prof:
        train(prof, hook.clock, 1)

    assert path.read_bytes() == before
    assert names(tmp_path) == ["a.tbd"]
    assert prof.recording.missing["file"] == "the run ended in its warm-up, so the older recording was kept"


def test_the_journal_of_the_older_recording_is_not_taken_for_that_of_the_new_one(tmp_path: Path):
    path = tmp_path / "a.tbd"
    older(path)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA cache_size = 1")
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany("INSERT INTO text VALUES (?, ?)", ((number, "x" * 3000) for number in range(9, 99)))
    hot = (tmp_path / "a.tbd-journal").read_bytes()
    connection.execute("ROLLBACK")
    connection.close()
    (tmp_path / "a.tbd-journal").write_bytes(hot)

    save(Recording(run(model="newer")), path, force=True)

    assert load(path).run.model == "newer"
    assert names(tmp_path) == ["a.tbd"]


@pytest.mark.parametrize("point", ["claimed", "in warmup", "end of warmup", "in clean", "in memory", "end of memory"])
def test_a_kill_leaves_what_had_ended_or_the_older_recording_and_blocks_nobody(
    tmp_path: Path, recording: Callable[[str], subprocess.Popen[str]], point: str
):
    path = tmp_path / "a.tbd"
    before = older(path)
    process = recording(point)
    with pytest.raises(UsageError, match="is being written by another run"):
        claim(path, force=True)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()

    if point in ("in memory", "end of memory"):
        kept = load(path)
        assert kept.run.ended_by == "the process was killed"
        assert [(window.name, window.state) for window in kept.windows] == [
            ("warmup", "complete"),
            ("clean", "complete"),
            ("memory", "open"),
        ]
        assert [len(window.table("step")) for window in kept.windows[:2]] == [3, 3]
    else:
        assert path.read_bytes() == before
    save(Recording(run(model="next")), path, force=True)
    assert load(path).run.model == "next"
    assert names(tmp_path) == ["a.tbd"]


def test_of_two_runs_with_one_name_the_second_is_refused_under_any_name_for_it(tmp_path: Path):
    (tmp_path / "link").symlink_to(tmp_path)
    with claim(tmp_path / "a.tbd", force=False):
        for same in (tmp_path / "a.tbd", tmp_path / "link" / "a.tbd"):
            with pytest.raises(UsageError, match="is being written by another run: choose another name with -o"):
                claim(same, force=True)
        claim(tmp_path / "b.tbd", force=False).release()

    assert names(tmp_path) == ["link"]
    claim(tmp_path / "a.tbd", force=False).release()


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # numpy's threads do not matter here
def test_a_claim_that_is_dropped_or_forked_holds_nothing(tmp_path: Path):
    claim(tmp_path / "a.tbd", force=False)
    held = claim(tmp_path / "a.tbd", force=False)
    child = os.fork()
    if child == 0:
        signal.pause()
        os._exit(0)
    try:
        with pytest.raises(UsageError, match="another run"):
            claim(tmp_path / "a.tbd", force=False)
        held.release()
        claim(tmp_path / "a.tbd", force=False).release()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert names(tmp_path) == []


def test_where_there_are_no_locks_one_goes_on_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def none(*_: object) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(placing.fcntl, "flock", none)
    claim(tmp_path / "a.tbd", force=False).release()
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("folder", "is a folder"),
        ("pipe", "is a device, pipe or socket"),
        ("device", "is a device, pipe or socket"),
        ("dangling", "is a link to what does not exist"),
        ("circle", "Too many levels of symbolic links"),
        ("x" * 300, "File name too long"),
        ("x" * 250, "File name too long"),  # of what lies beside it
        ("nowhere/a.tbd", "No such file or directory"),
    ],
)
def test_what_is_no_plain_file_is_refused_in_one_line_and_stays(tmp_path: Path, kind: str, said: str):
    path = Path("/dev/null") if kind == "device" else tmp_path / kind
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind in ("dangling", "circle"):
        path.symlink_to(tmp_path / ("nothing" if kind == "dangling" else kind))
    before = names(tmp_path)

    with pytest.raises(UsageError, match=said) as caught:
        claim(path, force=True)

    assert "\n" not in str(caught.value)
    assert names(tmp_path) == before


def test_a_link_stands_for_the_file_that_it_points_at(tmp_path: Path):
    (tmp_path / "runs").mkdir()
    older(tmp_path / "runs" / "a.tbd")
    (tmp_path / "last.tbd").symlink_to("runs/a.tbd")
    with pytest.raises(UsageError, match="exists"):
        claim(tmp_path / "last.tbd", force=False)
    prof, hook = profiler(SHORT, path=tmp_path / "last.tbd")
    with claim(tmp_path / "last.tbd", force=True), prof:
        train(prof, hook.clock, 6)

    assert (tmp_path / "last.tbd").is_symlink()
    assert load(tmp_path / "runs" / "a.tbd").run.model == "toy"
    assert names(tmp_path / "runs") == ["a.tbd"]


@pytest.fixture
def limit() -> Iterator[Callable[[int], None]]:
    """Return a function that lets no file be longer than so many bytes, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_reported_in_the_run_and_in_every_later_report(tmp_path: Path, limit: Callable[[int], None]):
    path = tmp_path / "a.tbd"
    with claim(path, force=False):
        recorder = Recorder(run(ended_by=STILL_RUNNING), path)
        limit(ROOM_BYTES)
        with recorder.window("warmup") as window:
            recorder.append(window, {"step": steps()})
        with recorder.window("memory") as window:
            recorder.recording.strings.add("a name that is not in the file")
            recorder.append(window, {"step": steps(200_000)})
        with recorder.window("clean") as window:
            recorder.append(window, {"step": steps()})
        recorder.update(ended_by="", complete=True)
        recorder.close()

    said = f"writing the file failed, what came later is not in it: {FULL}"
    assert recorder.recording.missing == {"file": said}
    kept = load(path)
    assert (kept.run.ended_by, kept.run.complete, kept.missing) == (FULL, False, {"file": said})
    assert [(window.name, window.state) for window in kept.windows] == [("warmup", "complete"), ("memory", "open")]
    text = terminal.render(summarize(kept))
    assert f"incomplete: {FULL}\nlost: memory (window 1)" in text
    assert names(tmp_path) == ["a.tbd"]


def test_on_a_full_disk_the_room_that_was_kept_is_given_back_before_the_reason_is_written(tmp_path: Path):
    path = tmp_path / "a.tbd"
    with claim(path, force=False):
        recorder = Recorder(run(ended_by=STILL_RUNNING), path)
        lock = tmp_path / ".a.tbd.lock"
        assert lock.stat().st_blocks * 512 >= ROOM_BYTES
        with recorder.window("clean") as window:
            recorder.append(window, {"step": steps()})
        recorder._give_up(OSError(28, "No space left on device"))
        assert lock.stat().st_blocks == 0

    assert load(path).run.ended_by == "the disk is full (No space left on device)"


def test_a_disk_that_is_full_from_the_start_leaves_nothing(tmp_path: Path, limit: Callable[[int], None]):
    path = tmp_path / "a.tbd"
    before = older(path)
    limit(8192)
    with claim(path, force=True):
        recorder = Recorder(run(), path)
        with recorder.window("clean") as window:
            recorder.append(window, {"step": steps()})
        recorder.close()
    with pytest.raises(UsageError, match=r"cannot write .*a.tbd: the disk is full \(File too large\)"):
        write_anew(recorder.recording, path)

    assert recorder.recording.missing["file"] == f"writing the file failed, nothing is kept of this run: {FULL}"
    assert path.read_bytes() == before
    assert names(tmp_path) == ["a.tbd"]


@pytest.mark.parametrize("form", ["sqlite", "csv"])
@pytest.mark.parametrize("how", ["interrupted", "killed", "full"])
def test_an_export_that_ends_early_leaves_nothing_that_blocks_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: Callable[[int], None], form: str, how: str
):
    whole = Recording(run(), [Window(0, "clean", "complete", {"step": steps(2000)})])
    folder, target = tmp_path / "there", tmp_path / "there" / "out"
    if how == "full":
        limit(20_000)
        with pytest.raises(UsageError, match="the disk is full"):
            export.write(whole, target, form)
        limit(resource.RLIM_INFINITY)
    else:
        rows, left = export._rows, tmp_path / "left"

        def stop(recording: Recording, kind: str) -> Iterator[export.Row]:
            yield from rows(recording, kind)
            if kind == "step":
                left.mkdir()
                subprocess.run(["cp", "-r", *folder.iterdir(), left], check=True)  # what a kill leaves
                signal.raise_signal(signal.SIGINT)

        with monkeypatch.context() as patched:
            patched.setattr(export, "_rows", stop)
            with pytest.raises(KeyboardInterrupt):
                export.write(whole, target, form)
    assert names(folder) == []
    if how == "killed":
        folder.rmdir()
        left.rename(folder)
        assert {".out.lock", ".out.part"} <= {*names(folder)}

    export.write(whole, target, form)
    assert names(folder) == ["out"]
    with pytest.raises(UsageError, match="exists"):
        export.write(whole, target, form)
