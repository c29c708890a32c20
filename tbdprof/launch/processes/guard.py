"""Find the processes that a command started, and end them.

As a program of its own (`python guard.py FOLDER`), it is started beside a command by `launch.processes.relay`, and ends
the command if tbdprof is killed. It then removes the folder. Signals that come to a whole group of processes, as Ctrl-C
at a terminal, stay pending here: so tbdprof can see that the command received them, too.

Only the standard library is imported: the program runs where tbdprof is not on the path.
"""

import os
import shutil
import signal
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

GRACE_S = 30.0  # to end by itself, for example after saving a checkpoint
DONE = "done"
_PERIOD_S = 0.05
_ZOMBIE = "Z"

Process = tuple[int, int]  # number, and when it began: numbers are used again


def tree(number: int) -> set[Process]:
    """Return a process and those it started, directly or not, while the processes between them live."""
    parents = dict(_living())
    found = {each for each in parents if each[0] == number}
    while True:
        numbers = {each[0] for each in found}
        more = {each for each, parent in parents.items() if parent in numbers} - found
        if not more:
            return found
        found |= more


def end(processes: Collection[Process], number: int, grace_s: float = GRACE_S) -> None:
    """Send a signal to processes and wait until they have ended; kill those that have not after the time of grace."""
    _send(processes, number)
    until = time.monotonic() + grace_s
    while left := _left(processes):
        if time.monotonic() > until:
            _send(left, signal.SIGKILL)
            return
        time.sleep(_PERIOD_S)


def _left(processes: Collection[Process]) -> set[Process]:
    return {each for each, _ in _living()} & {*processes}


def _send(processes: Collection[Process], number: int) -> None:
    for each in _left(processes):
        with suppress(OSError):
            os.kill(each[0], number)


def _living() -> Iterator[tuple[Process, int]]:
    """Yield every process that has not ended, and the number of its parent."""
    for folder in os.listdir("/proc"):  # noqa: PTH208 - pathlib would be slower
        with suppress(OSError, ValueError, IndexError):
            # The name of the program stands in parentheses and may contain any character.
            fields = Path("/proc", folder, "stat").read_text(errors="replace").rpartition(")")[2].split()
            if fields[0] != _ZOMBIE:
                yield (int(folder), int(fields[19])), int(fields[1])


def main(folder: str) -> None:
    """Read the command's number from stdin; if its end comes without the word that tbdprof is done, end the command."""
    words = sys.stdin.read().split()
    if words[-1:] == [DONE]:
        return
    for number in map(int, words):
        end(tree(number), signal.SIGTERM)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1])
