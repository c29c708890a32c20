"""Run a command as if it had been typed in place of tbdprof: what comes to tbdprof reaches it, and it ends first."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TextIO

from tbdprof.launch.processes import guard
from tbdprof.loop.ending import Terminated

_ENDING = {signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM}
_RELAYED = (*_ENDING, signal.SIGUSR1, signal.SIGUSR2)
_TOGETHER_S = 0.1  # within which a signal to a group of processes has reached all of them


@dataclass(frozen=True, slots=True)
class Ended:
    """The process of a command that has ended."""

    number: int
    status: int  # as `subprocess` gives it
    signals: tuple[int, ...]  # that came to tbdprof meanwhile and were to end it

    def raise_signal(self) -> None:
        """Raise KeyboardInterrupt, or its kind for another signal, if a signal came that was to end tbdprof."""
        if self.signals:
            raise KeyboardInterrupt if self.signals[-1] == signal.SIGINT else Terminated(self.signals[-1])


def run(
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    stdout: TextIO | None = None,
    stderr: TextIO | None = None,
    kept: Collection[int] = (),
) -> Ended:
    """Run a command to its end.

    If tbdprof is killed, the command and what it started get SIGTERM, later SIGKILL, and `folder` is removed. The
    command inherits the handles that are `kept`. Raise OSError if the command cannot be started.
    """
    with _guarded(folder) as guarding, _relayed(guarding) as relay:
        process = subprocess.Popen(command, env=environment, stdout=stdout, stderr=stderr, pass_fds=kept)
        guarding.send(str(process.pid))
        relay.begin(process)
        status = process.wait()
        relay.end()
        return Ended(process.pid, status, tuple(relay.ending))


class _Guard:
    """The process that ends the command if tbdprof is killed; signals stay pending in it."""

    def __init__(self, folder: Path) -> None:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _RELAYED)
        try:
            command = [sys.executable, "-I", "-S", guard.__file__, str(folder)]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def send(self, word: str) -> None:
        """Send a word to the process."""
        with suppress(BrokenPipeError):  # somebody killed it
            if self._process.stdin is not None:
                self._process.stdin.write(f"{word}\n")
                self._process.stdin.flush()

    def received(self, number: int) -> bool:
        """Return whether a signal came to this process, too; then it was meant for the whole group."""
        try:
            lines = Path("/proc", str(self._process.pid), "status").read_text().splitlines()
        except OSError:
            return False
        pending = [int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd:", "ShdPnd:"))]
        return any(mask >> (number - 1) & 1 for mask in pending)

    def close(self) -> None:
        """End the process."""
        self.send(guard.DONE)
        self._process.communicate()


@contextmanager
def _guarded(folder: Path) -> Iterator[_Guard]:
    guarding = _Guard(folder)
    try:
        yield guarding
    finally:
        guarding.close()


class _Relay:
    """Passes on the signals that came to tbdprof alone."""

    def __init__(self, received: Callable[[int], bool]) -> None:
        self._received = received
        self._process: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []  # came before the command was there
        self.ending: list[int] = []  # came and were to end tbdprof
        self._to_end: dict[guard.Process, int] = {}  # what ran when a signal was passed on, and the signal

    def take(self, number: int, frame: FrameType | None) -> None:
        """Take a signal."""
        if number in _ENDING:
            self.ending.append(number)
        if self._process is None:
            self._early.append(number)
            return
        time.sleep(_TOGETHER_S)
        if not self._received(number):
            self._pass(self._process, number)

    def begin(self, process: subprocess.Popen[bytes]) -> None:
        """Pass signals on to a process from now on."""
        self._process = process
        for number in self._early:
            self._pass(process, number)

    def end(self) -> None:
        """End what the command left behind when a signal was to end it: for example what a shell had started."""
        for number in {*self._to_end.values()}:
            guard.end([each for each, sent in self._to_end.items() if sent == number], number)

    def _pass(self, process: subprocess.Popen[bytes], number: int) -> None:
        if number in _ENDING:
            self._to_end |= dict.fromkeys(guard.tree(process.pid), number)
        process.send_signal(number)


@contextmanager
def _relayed(guarding: _Guard) -> Iterator[_Relay]:
    """Relay signals in the block, except those that are ignored (as after nohup): the command ignores them, too."""
    relay = _Relay(guarding.received)
    before = {number: signal.getsignal(number) for number in _RELAYED}
    before = {number: each for number, each in before.items() if each not in (None, signal.SIG_IGN)}
    for number in before:
        signal.signal(number, relay.take)
    try:
        yield relay
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
