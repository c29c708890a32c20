"""A signal within a guarded function waits until it is over."""

import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tbdprof.hooks.interrupts import Signals, guarded


@pytest.fixture
def received() -> Iterator[list[int]]:
    """Return the signals a handler of the script's received."""
    seen: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
    yield seen
    signal.signal(signal.SIGUSR1, before)


@pytest.fixture
def signals(received: list[int]) -> Iterator[Signals]:
    installed = Signals()
    installed.install()
    yield installed
    installed.restore()


def seen_within(received: list[int]) -> int:
    signal.raise_signal(signal.SIGUSR1)
    return len(received)


@guarded
def callback(inner: Callable[[list[int]], int], received: list[int]) -> int:
    return inner(received)


def test_a_handler_runs_at_once_outside_of_what_is_guarded(signals: Signals, received: list[int]):
    assert seen_within(received) == 1


def test_a_handler_runs_after_what_is_guarded_and_what_it_calls(signals: Signals, received: list[int]):
    assert callback(seen_within, received) == 0
    until = time.monotonic() + 10
    while not received and time.monotonic() < until:
        time.sleep(0.01)
    assert received == [signal.SIGUSR1]


def test_without_it_the_handler_runs_within(received: list[int]):
    assert callback(seen_within, received) == 1


def test_handlers_are_put_back_but_not_over_one_set_meanwhile(received: list[int]):
    before = signal.getsignal(signal.SIGUSR1), signal.getsignal(signal.SIGINT)
    installed = Signals()
    installed.install()
    assert signal.getsignal(signal.SIGUSR1) is not before[0]
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    installed.restore()

    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
    assert signal.getsignal(signal.SIGINT) is before[1]


def test_another_thread_installs_nothing(received: list[int]):
    before = signal.getsignal(signal.SIGUSR1)
    thread = threading.Thread(target=lambda: Signals().install())
    thread.start()
    thread.join()

    assert signal.getsignal(signal.SIGUSR1) is before
