"""How long this process's threads were kept from the cores by others: ready to run, while something else ran.

Linux counts for each thread how long it ran and how long it waited for a core (`schedstat`). A process has threads that
hardly ever run, and their waits delay nobody. So the waits of the threads are averaged, and each counts by the CPU time
that the thread spent meanwhile. A loop that computes in one thread is delayed by just that. With several threads that
wait for each other it is delayed by at least that.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

TASKS = Path("/proc/self/task")
NS = 1e9
Times = dict[str, tuple[int, int]]  # ran and waited, in nanoseconds, by thread


class CoreWaits:
    """A counter that grows by the average wait, in seconds, between one call and the next."""

    def __init__(self, tasks: Path = TASKS) -> None:
        self._tasks = tasks
        self._before: Times = {}
        self._seconds = 0.0

    def __call__(self) -> float:
        """Return the waits so far; 0 always where the kernel does not count them."""
        now = dict(self._times())
        grown = [_grown(times, self._before.get(name, (0, 0))) for name, times in now.items()]
        spent = sum(ran for ran, _ in grown)
        if self._before and spent:
            self._seconds += sum(ran * waited for ran, waited in grown) / spent / NS
        self._before = now
        return self._seconds

    def _times(self) -> Iterator[tuple[str, tuple[int, int]]]:
        for task in self._tasks.iterdir():
            with suppress(OSError, ValueError):  # the thread ended meanwhile, or the kernel does not count
                ran, waited, *_ = (task / "schedstat").read_text().split()
                yield task.name, (int(ran), int(waited))


def _grown(now: tuple[int, int], before: tuple[int, int]) -> tuple[int, int]:
    return max(0, now[0] - before[0]), max(0, now[1] - before[1])
