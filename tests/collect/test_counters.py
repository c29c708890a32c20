"""The sampling process from its parent's side: what it says arrives, and nothing it does reaches the loop."""

import ctypes
import os
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tbdprof.collect.pm import collector, process
from tbdprof.collect.pm.collector import WAITING, CounterSampler, Limits, available, probe
from tbdprof.errors import UnavailableError
from tbdprof.facts.records import Strings

FAKE = Path(__file__).parents[1] / "support" / "fake_sidecar.py"
SHORT = Limits(ready_s=20.0, answer_s=20.0, finish_s=0.2)


def command(mode: str) -> list[str]:
    return [sys.executable, str(FAKE), mode]


def sampler(mode: str, limits: Limits = WAITING) -> CounterSampler:
    return CounterSampler("cuda:0", command=command(mode), limits=limits)


def has_driver() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def windowed(mode: str, limits: Limits = WAITING):
    """Run a window, and return what was collected and the texts of it."""
    strings, one = Strings(), sampler(mode, limits)
    one.start("sampled")
    one.stop()
    collected = one.drain(strings)
    one.close()
    return collected, strings


def test_samples_arrive_with_their_times_and_one_row_a_counter():
    collected, strings = windowed("good")
    rows = collected.tables["sample"]
    found = [(strings[int(row["counter"])], strings[int(row["device"])], *row.tolist()[2:]) for row in rows]

    assert found == [
        ("pm_fp32_pipe", "cuda:0", 1_100_000, 0.25, 1_000_000),
        ("pm_fp32_pipe", "cuda:0", 1_200_000, 0.5, 1_100_000),
        ("pm_fp32_pipe", "cuda:0", 1_400_000, 0.75, 1_300_000),
        ("pm_dram", "cuda:0", 1_100_000, 0.1, 1_000_000),
        ("pm_dram", "cuda:0", 1_400_000, 0.3, 1_300_000),
        ("pm_lost_samples", "cuda:0", 1_400_000, 1.0, -1),
        ("pm_clock_residual_ns", "cuda:0", 1_400_000, 80.0, -1),
    ]


def test_what_is_lost_is_said_in_words():
    collected, _ = windowed("good")

    assert collected.missing == {"samples": "1 of 4 samples are lost: the hardware's buffer overflowed 2 times"}


def test_without_permission_the_way_to_get_it_is_given():
    with pytest.raises(UnavailableError, match="NVreg_RestrictProfilingToAdminUsers=0") as refused:
        sampler("refused").start("sampled")

    assert "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES (35)" in str(refused.value)


@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        ("killed", "the sampling process was killed by signal 9"),
        ("failed", "the sampling process ended with 1: the counters went away"),
        ("garbage", "the sampling process sent an answer that cannot be read: Segmentation what"),
        ("out of turn", "the sampling process said 'started' in place of 'stopped'"),
    ],
)
def test_a_process_that_fails_in_the_window_costs_its_samples_alone(mode: str, reason: str):
    collected, _ = windowed(mode)

    assert collected.missing == {"sampled": reason}
    assert not collected.tables


@pytest.mark.parametrize("mode", ["no file", "torn file"])
def test_samples_that_cannot_be_read_are_said_to_be(mode: str):
    collected, _ = windowed(mode)

    assert collected.missing["sampled"].startswith("the samples cannot be read: ")
    assert not collected.tables


def test_a_process_that_hangs_is_waited_for_no_longer_than_the_limit_and_killed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(process, "_END_S", 0.1)
    one = sampler("hanging", SHORT)
    one.start("sampled")
    assert one._sidecar is not None
    pid, begun = one._sidecar._process.pid, time.monotonic()
    one.stop()

    assert time.monotonic() - begun < 5
    assert one.drain(Strings()).missing == {"sampled": "the sampling process did not answer within 0.2 s"}
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    one.close()


def test_one_that_never_becomes_ready_is_given_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(process, "_END_S", 0.1)

    reason = available("cuda:0", command("mute"), Limits(ready_s=0.2))

    assert reason == "the sampling process did not answer within 0.2 s"


def test_a_process_that_no_signal_ends_is_left_alone(monkeypatch: pytest.MonkeyPatch):
    """As one does that waits for a driver that never answers it."""
    monkeypatch.setattr(process, "_END_S", 0.05)
    one = sampler("hanging", SHORT)
    one.start("sampled")
    assert one._sidecar is not None
    child = one._sidecar._process
    with monkeypatch.context() as patched:
        patched.setattr(child, "kill", lambda: None)
        one.stop()

    assert child.poll() is None
    assert one.drain(Strings()).missing == {"sampled": "the sampling process did not answer within 0.2 s"}
    child.kill()
    child.wait()
    one.close()


def test_a_process_is_heard_however_many_files_the_training_has_open():
    """`select` takes descriptors up to 1023 alone."""
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 1200:
        pytest.skip("so many files cannot be opened here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1200), hard))
    held = [os.dup(0) for _ in range(1030)]
    try:
        assert available("cuda:0", command("good")) is None
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_without_a_place_for_files_it_is_a_reason_and_no_error_of_the_loops(monkeypatch: pytest.MonkeyPatch):
    def full(**options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(collector, "TemporaryDirectory", full)

    assert (
        available("cuda:0", command("good")) == "there is no place for the samples: [Errno 28] No space left on device"
    )
    with pytest.raises(UnavailableError, match="no place"):
        sampler("good").start("sampled")


def test_the_probe_reports_what_would_be_sampled():
    assert probe("cuda:0", command("good"))["chip"] == "GH100"
    assert available("cuda:0", command("good")) is None


def test_an_interpreter_that_is_not_there_is_a_reason():
    reason = available("cuda:0", ["/nowhere/python"])

    assert reason is not None
    assert reason.startswith("the sampling process cannot be started: ")


def test_a_window_begins_anew_after_another():
    one, strings = sampler("good"), Strings()
    for _ in range(2):
        one.start("sampled")
        one.stop()
        assert len(one.drain(strings).tables["sample"]) == 7
    assert not one.drain(strings).tables
    one.close()


def test_a_forked_child_leaves_the_process_to_its_parent():
    one = sampler("good")
    one.start("sampled")
    parent = one._sidecar
    assert parent is not None
    one._pid += 1  # as it is in a child
    one.stop()
    one.close()

    assert parent._process.poll() == 0  # forgotten, so that its end is not waited for
    parent._process.returncode = None
    parent.end()
    assert one._folder is not None
    one._folder.cleanup()


def test_the_command_takes_the_interpreter_that_has_cupti_python(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TBDPROF_PM_PYTHON", "/other/python")
    monkeypatch.setenv("PYTHONPATH", "/of/this/one")

    assert process.command(1, 50_000)[0] == "/other/python"
    assert process.command(1, 50_000)[-6:] == ["--device", "1", "--interval-ns", "50000", "--limit-s", "900"]
    assert "PYTHONPATH" not in process._environment()


@pytest.mark.skipif(has_driver(), reason="there is a driver")
def test_without_a_driver_the_real_process_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "json.py").write_text("raise SystemExit('the wrong module')")
    monkeypatch.chdir(tmp_path)

    reason = available("cuda:0")

    assert reason is not None
    assert reason.startswith("there is no CUDA driver: libcuda.so.1")


def test_columns_of_different_lengths_are_refused(tmp_path: Path):
    np.savez(tmp_path / "a.npz", start_ns=np.zeros(2), end_ns=np.zeros(2), pm_dram=np.zeros(1))

    with pytest.raises(ValueError, match="not of one length"):
        collector._columns(tmp_path, {"file": "a.npz"})
