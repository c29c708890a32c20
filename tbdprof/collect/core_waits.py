"""How long this process's threads were kept from the cores by others: ready to run, while something else ran.

Linux counts for each thread how long it ran and how long it waited for a core (`schedstat`). A process has threads that
hardly ever run, and their waits delay nobody. So the waits of the threads are averaged, and each counts by the CPU time
that the thread spent meanwhile. A loop that computes in one thread is delayed by just that. With several threads that
wait for each other it is delayed by at least that.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

TASKS = Path("/proc/self/task")
NS = 1e9
_LONGEST = 256  # bytes: three numbers
Times = dict[str, tuple[int, int]]  # ran and waited, in nanoseconds, by thread


class CoreWaits:
    """A counter that grows by the average wait, in seconds, between `begin` and `end`."""

    def __init__(self, tasks: Path = TASKS) -> None:
        self._tasks = tasks
        self._before: Times = {}
        self._seconds = 0.0

    def __call__(self) -> float:
        """Return the waits so far; 0 always where the kernel does not count them."""
        return self._seconds

    def begin(self) -> None:
        """Count the waits from now on."""
        self._before = dict(self._times())

    def end(self) -> None:
        """Count the waits until now."""
        grown = [_grown(times, self._before.get(name, (0, 0))) for name, times in self._times()]
        spent = sum(ran for ran, _ in grown)
        if self._before and spent:
            self._seconds += sum(ran * waited for ran, waited in grown) / spent / NS
        self._before = {}

    def _times(self) -> Iterator[tuple[str, tuple[int, int]]]:
        for task in os.listdir(self._tasks):  # noqa: PTH208 - pathlib would be slower, as everywhere below
            with suppress(OSError, ValueError):  # the thread ended meanwhile, or the kernel does not count
                yield task, times_of(self._tasks, task)


def times_of(tasks: Path, task: str) -> tuple[int, int]:
    """Return how long a thread ran and waited, in ns; raise OSError if it has ended or the kernel does not count.

    A framework has dozens of threads, and each is read at each block.
    """
    opened = os.open(f"{tasks}/{task}/schedstat", os.O_RDONLY)
    try:
        ran, waited, *_ = os.read(opened, _LONGEST).split()
    finally:
        os.close(opened)
    return int(ran), int(waited)


def _grown(now: tuple[int, int], before: tuple[int, int]) -> tuple[int, int]:
    return max(0, now[0] - before[0]), max(0, now[1] - before[1])
