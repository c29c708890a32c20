"""A run is watched from its file alone: in a terminal, line by line, and beside the run; also one that is killed."""

import fcntl
import os
import signal
import struct
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from forked_run import PLAN, WHOLE, ForkedRun, recording_run
from rich.text import Text

from tbdprof.analysis.summary import summarize
from tbdprof.cli import streams
from tbdprof.cli.live.bottom import Bottom
from tbdprof.cli.live.follow import Seen, Stage, follow
from tbdprof.cli.main import main
from tbdprof.errors import RecordingFormatError, UsageError
from tbdprof.facts.file.places import LOCK, PART, beside
from tbdprof.facts.file.placing import claim
from tbdprof.facts.file.reading import load
from tbdprof.facts.file.watching import is_written, latest

pyte = pytest.importorskip("pyte")
from terminal import Terminal  # noqa: E402 - it needs pyte

Typed = Callable[..., tuple[int, str, str]]
FIXTURE = Path(__file__).parent.parent / "fixtures" / "format-5-torch.tbd"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.tbd"


def typed_in(monkeypatch: pytest.MonkeyPatch, *words: str) -> Callable[[], int]:
    """Return a function that runs the command line in a forked process, and its exit code."""
    monkeypatch.setattr(sys, "argv", ["tbdprof", *words])

    def run() -> int:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            main()
        except SystemExit as end:
            return int(end.code or 0)
        return 70

    return run


def looks(path: Path, until: Callable[[Seen], bool] = lambda seen: False) -> list[Seen]:
    """Follow a file quickly, to the end or until something was seen."""
    found: list[Seen] = []
    for seen in follow(path, summarize, pause=lambda _: time.sleep(0.02)):
        found.append(seen)
        if until(seen) or len(found) > 2000:
            break
    return found


# What a look at the file shows.


def test_a_run_is_followed_from_before_its_file_to_its_end(path: Path) -> None:
    with recording_run(path, pause_s=0.3):
        found = looks(path)

    stages = list(dict.fromkeys(seen.stage for seen in found))
    assert stages[-3:] == [Stage.PREPARING, Stage.RUNNING, Stage.ENDED]
    live = [seen.live for seen in found if seen.live is not None]
    assert list(dict.fromkeys((each.window, each.place) for each in live))[-1] == ("clean", 6)
    assert live[-1].planned_windows == 1 + len(PLAN.windows)
    assert [each.steps for each in live] == sorted(each.steps for each in live)
    assert live[-1].steps == WHOLE
    assert found[-1].summary is not None
    assert found[-1].summary.recording.run.complete


def test_throughput_so_far_is_that_of_the_blocks_of_an_open_clean_window(path: Path) -> None:
    with recording_run(path, 2 + 6, step_s=0.2) as run:  # six of the ten steps of the first clean window
        looks(path, until=lambda seen: seen.live is not None and seen.live.throughput is not None)
        run.kill()
    found = looks(path)

    assert found[-1].live is not None
    assert found[-1].live.throughput is not None
    assert found[-1].live.throughput.rate.per_s == pytest.approx(80)  # 8 samples in 0.1 s of the fake's clock
    assert summarize(load(path)).throughput is None  # the window did not end: the report does not count it


def test_a_run_that_is_killed_is_gone_and_what_it_had_written_is_said(path: Path) -> None:
    with recording_run(path, 25) as run:
        looks(path, until=lambda seen: seen.live is not None and seen.live.ended_windows >= 3)
        assert is_written(path)
        run.kill()
        assert is_written(path) is False
        (seen,) = looks(path)

    assert seen.stage is Stage.GONE
    assert seen.live is not None
    assert (seen.live.window, seen.live.is_open) == ("clean", True)
    assert seen.summary is not None
    assert seen.summary.memory is not None  # of the memory window that had ended


def test_an_older_recording_is_none_of_the_run_that_will_replace_it(path: Path) -> None:
    with recording_run(path) as run:
        run.wait()
    time.sleep(0.02)
    with recording_run(path, force=True, pause_s=2.0):
        while not is_written(path):
            time.sleep(0.01)
        assert latest(path) is None
        found = looks(path)

    assert found[0].stage is Stage.PREPARING
    assert found[-1].stage is Stage.ENDED


def test_a_run_that_keeps_nothing_is_gone_and_the_older_recording_not_taken_for_its(path: Path) -> None:
    with recording_run(path) as run:
        run.wait()
    time.sleep(0.02)
    with recording_run(path, 1, force=True, pause_s=0.2) as run:

        def kill_in_the_warm_up() -> None:  # and leave the waiting for its end to the main thread
            while not beside(path, PART).exists():
                time.sleep(0.01)
            time.sleep(0.3)
            os.kill(run.pid, signal.SIGKILL)

        killer = threading.Thread(target=kill_in_the_warm_up)
        killer.start()
        while not is_written(path):
            time.sleep(0.01)
        found = looks(path)
        killer.join()

    assert [seen.stage for seen in found][-1] is Stage.GONE
    assert beside(path, PART).exists()  # it was killed in its warm-up
    assert found[-1].live is None


def test_a_reader_of_the_lock_keeps_nobody_from_the_place(path: Path) -> None:
    looking = True

    def look() -> None:
        while looking:
            is_written(path)
            time.sleep(0.001)

    reader = threading.Thread(target=look)
    reader.start()
    try:
        for _ in range(100):
            claim(path, force=False).release()
    finally:
        looking = False
        reader.join()


def test_a_lock_that_is_left_over_is_no_run(path: Path) -> None:
    beside(path, LOCK).touch()
    assert is_written(path) is False


def test_where_locks_cannot_be_read_nobody_knows(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beside(path, LOCK).touch()

    def refuse(*_: object) -> None:
        raise OSError(95, "no locks here")

    monkeypatch.setattr("tbdprof.facts.file.watching.fcntl.flock", refuse)
    assert is_written(path) is None


def test_damage_is_reported_at_once_where_nobody_writes_and_after_some_looks_where_somebody_does(path: Path) -> None:
    data = bytearray(FIXTURE.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 400] = bytes(400)
    path.write_bytes(data)

    with pytest.raises(RecordingFormatError, match="damaged"):
        looks(path)
    path.unlink()
    with claim(path, force=False):
        path.write_bytes(data)
        pauses: list[float] = []
        with pytest.raises(RecordingFormatError, match="damaged"):
            list(follow(path, summarize, pause=pauses.append))
        assert len(pauses) > 5


def test_a_name_that_ranks_share_is_refused(path: Path) -> None:
    path.with_name("run.rank0.tbd").touch()
    with pytest.raises(UsageError, match="each rank has a file"):
        looks(path)


# The command.


def test_a_finished_file_is_shown_and_the_code_is_0(typed: Typed) -> None:
    code, out, err = typed("watch", str(FIXTURE))

    assert code == 0
    assert "samples/s so far" in out
    assert "\x1b" not in out + err
    assert "the recording is complete" in err
    assert f"tbdprof report {FIXTURE}" in err


def test_a_damaged_file_a_folder_and_a_missing_folder_are_one_line(typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "a.tbd").write_bytes(b"SQLite format 3\0" + bytes(200))

    for name, expected, code in (("a.tbd", "damaged", 1), (".", "is a folder", 1), ("x/a.tbd", "no folder", 2)):
        found, out, err = typed("watch", str(tmp_path / name))
        assert (found, out) == (code, "")
        assert expected in err
        assert err.count("\n") == 1


def test_lines_where_standard_output_is_no_terminal(typed: Typed, path: Path) -> None:
    with recording_run(path, pause_s=0.3):
        code, out, err = typed("watch", str(path))

    assert code == 0
    assert "run.tbd: waiting" in out.splitlines()[0]
    assert "memory 240 B at the peak: weights 41.7 %" in out
    assert "\x1b" not in out + err


def test_a_hostile_name_stays_text(typed: Typed, path: Path) -> None:
    with recording_run(path, model="[red]\x1b[31m\u202eevil\n"):
        code, out, err = typed("watch", str(path))

    assert code == 0
    assert "\x1b" not in out + err
    assert "\u202e" not in out + err


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    made: list[Terminal] = []
    yield made
    for each in made:
        each.close()


def test_the_view_in_a_terminal_while_the_run_is_killed(
    path: Path, monkeypatch: pytest.MonkeyPatch, terminals: list[Terminal]
) -> None:
    terminal = Terminal(typed_in(monkeypatch, "watch", str(path)))
    terminals.append(terminal)
    terminal.wait_for("waiting")
    with recording_run(path, 33) as run:
        terminal.wait_for("window 6 of 6")
        terminal.wait_for("device busy")
        shown = terminal.shown()
        run.kill()
        code = terminal.wait()

    assert "toy · torch 1.0 · cpu" in shown
    assert "window 6 of 6" in shown
    assert "80" in shown
    assert "weights 41.7 %, weight gradients 41.7 %, feature maps 16.7 %" in shown
    assert code == 1
    said = terminal.shown().replace("\n", "")
    assert "the run is gone, killed in the clean window" in said
    assert terminal.raw.endswith(b"\n")
    assert terminal.raw.rfind(b"\x1b[?25h") > terminal.raw.rfind(b"\x1b[?25l")  # the cursor is there again


def test_ctrl_c_ends_the_view_and_not_the_run(
    path: Path, monkeypatch: pytest.MonkeyPatch, terminals: list[Terminal]
) -> None:
    with recording_run(path, 10) as run:
        terminal = Terminal(typed_in(monkeypatch, "watch", str(path)))
        terminals.append(terminal)
        terminal.wait_for("window 2 of 6")
        terminal.interrupt()
        assert terminal.wait() == 130
        assert "interrupted; the run that was watched goes on" in terminal.shown()
        os.kill(run.pid, 0)


# Beside the run.


def beside_a_run(path: Path, lines: int) -> Callable[[], int]:
    """Return a run with a view beside it, which prints lines."""

    def act() -> int:
        from tbdprof.cli.live.starting import shown

        with shown(path):
            run = ForkedRun(path, WHOLE)
            for number in range(lines):
                time.sleep(0.05)
                print(f"line {number}", flush=True)
            run.wait()
            time.sleep(1.5)
        print("the report")
        return 0

    return act


def test_a_view_beside_a_run_leaves_every_line_of_the_program_whole(path: Path, terminals: list[Terminal]) -> None:
    terminal = Terminal(beside_a_run(path, 60))
    terminals.append(terminal)
    terminal.wait_for("device busy")
    beside_it = terminal.shown()
    assert terminal.wait() == 0

    lines = [line for line in beside_it.splitlines() if line.startswith("line ")]
    assert lines, beside_it
    assert "toy · torch" in beside_it
    printed = [line for line in (*terminal.scrolled(), *terminal.shown().splitlines()) if line.strip()]
    assert printed == [*(f"line {number}" for number in range(60)), "the report"]


def test_a_terminal_that_is_too_low_shows_the_program_alone(path: Path, terminals: list[Terminal]) -> None:
    terminal = Terminal(beside_a_run(path, 5), lines=8)
    terminals.append(terminal)
    assert terminal.wait() == 0
    printed = [line for line in terminal.shown().splitlines() if line]
    assert printed == [*(f"line {number}" for number in range(5)), "the report"]
    assert b"\x1b" not in terminal.raw


def test_a_view_beside_a_run_is_lines_where_standard_error_is_no_terminal(path: Path) -> None:
    said, printed = path.with_name("stderr"), path.with_name("stdout")
    child = os.fork()
    if not child:
        try:
            for number, target in ((1, printed), (2, said)):
                os.dup2(os.open(target, os.O_WRONLY | os.O_CREAT), number)
            sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
            beside_a_run(path, 5)()
            sys.stdout.flush()
        finally:
            os._exit(0)
    os.waitpid(child, 0)

    assert printed.read_text().splitlines() == [*(f"line {number}" for number in range(5)), "the report"]
    lines = said.read_text().splitlines()
    assert all(line.startswith("tbdprof: ") for line in lines)
    assert "memory 240 B at the peak" in lines[-1]
    assert "\x1b" not in said.read_text()


def test_in_a_terminal_without_unicode_the_view_has_its_likeness() -> None:
    streams.prepare()
    ours, theirs = os.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    with os.fdopen(theirs, "w", encoding="ascii", errors=sys.stdout.errors) as stream:
        bottom = Bottom(stream, 7)
        bottom.draw(Text("8 µs · █░"))
        bottom.close()
        drawn = os.read(ours, 1 << 16)
    os.close(ours)
    assert b"8 us - #." in drawn
