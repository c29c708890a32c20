"""Looking at other threads never waits for a lock that this thread holds."""

import hashlib
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tbdprof.hooks import threads

ROOT = Path(__file__).parents[2]
PROGRAM = """
import faulthandler, gc, threading
from tbdprof.hooks import threads

class Local:  # garbage whose end needs the lock of Python's threads
    def __init__(self):
        self.local, self.me = threading.local(), self

faulthandler.dump_traceback_later(60, exit=True)
end = threading.Event()
others = [threading.Thread(target=end.wait) for _ in range(8)]
for each in others:
    each.start()
gc.set_threshold(1)  # collect at nearly every allocation
for _ in range(3000):
    Local()
    assert len(threads.frames()) == 8 and threads.are_others()
assert gc.isenabled()
end.set()
"""


def test_garbage_that_ends_meanwhile_stops_nothing() -> None:
    """Python 3.11.7 waited for ever: it holds that lock while it makes the answer, and may collect garbage there."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, timeout=120)

    assert (done.returncode, done.stderr) == (0, "")


def test_threads_are_waited_for_until_each_has_moved_or_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter([{"1": 0, "2": 5, "3": 7}, {"1": 10, "2": 5}, {"1": 999_999}, {"1": 1_000_000}])
    monkeypatch.setattr(threads, "_running_ns", lambda: next(looks))

    threads.let_others_move(60)

    assert not [*looks]  # not one look before the first thread moved


def test_a_thread_that_gets_no_core_is_waited_for_no_longer_than_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_running_ns", lambda: {"1": 0})

    threads.let_others_move(0.01)


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the system does not say what threads used")
def test_a_running_thread_is_seen_and_a_sleeping_one_is_not() -> None:
    end, native = threading.Event(), dict[str, str]()

    def sleep() -> None:
        native["sleeps"] = str(threading.get_native_id())
        end.wait()

    def run() -> None:
        native["runs"] = str(threading.get_native_id())
        while not end.is_set():
            hashlib.sha256(bytes(1 << 24))  # lets go of Python's lock

    each = [threading.Thread(target=target) for target in (sleep, run)]
    for thread in each:
        thread.start()
    until, seen = time.monotonic() + 30, list[str]()
    while seen != ["runs"] and time.monotonic() < until:  # the other one does not sleep at once
        time.sleep(0.01)
        found = {*(threads._running_ns() or {})}
        seen = [name for name, number in native.items() if number in found]
    end.set()

    assert seen == ["runs"]
