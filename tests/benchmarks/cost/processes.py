"""The processes in which steps are timed, seen from the benchmark: each has one framework, and waits for orders."""

import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.connection import Pipe
from pathlib import Path
from types import TracebackType

from cost.figures import AGAIN, BARE, WAITING, WINDOWS, Stretch

PEERS = {
    "torch": ("torch.profiler", "torch.profiler, memory and shapes", "torch.profiler, stacks", "FlopCounterMode"),
    "mxnet": ("MXNet's profiler, memory",),
    "tensorflow": ("TensorFlow's profiler",),
}
RUNS_AHEAD = ("mxnet",)  # frameworks that return from an operator before it has run, on a CPU, too
_THREADS = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS")
_FOLDER = Path(__file__).resolve().parents[1]
_LAST_CHARACTERS = 2000


class BenchmarkError(Exception):
    """A process ended before it answered."""


class Server:
    """A process that times steps on request; a context manager."""

    def __init__(self, framework: str, size: str, threads: int, kind: str, windows: Sequence[str] = ()) -> None:
        self._here, there = Pipe()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process
        given = [str(there.fileno()), framework, size, str(threads), kind, *windows]
        command = [sys.executable, "-m", "cost.serve", *given]
        self._process = subprocess.Popen(
            command, pass_fds=[there.fileno()], stdout=self._errors, stderr=self._errors, env=environment(threads)
        )
        there.close()

    def __enter__(self) -> "Server":
        """Return the process."""
        return self

    def wait(self) -> None:
        """Wait until its model is built and warm: meanwhile it would slow down the steps of others."""
        self._answer("begins")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the process."""
        self._here.close()  # it ends where nobody asks any more
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()

    def stretch(self, arm: str) -> dict[str, Stretch]:
        """Return the timed steps of an arm, by name: a clean window also times steps that are not reported."""
        with suppress(OSError):  # it has ended, and the answer says so
            self._here.send(arm)
        return {name: Stretch(*values) for name, values in self._answer(f"times {arm!r}").items()}

    def _answer(self, task: str) -> dict[str, tuple[float, float, float | None]]:
        try:
            answer: dict[str, tuple[float, float, float | None]] = self._here.recv()
        except (EOFError, OSError) as error:
            self._errors.seek(0)
            said = self._errors.read().decode(errors="replace")[-_LAST_CHARACTERS:]
            raise BenchmarkError(f"the process that {task} ended:\n{said}") from error
        return answer


def measure(
    framework: str, size: str, threads: int, cycles: int, *, seed: int, peers: bool
) -> Iterator[dict[str, Stretch]]:
    """Yield each cycle's stretches, one of each arm, in an order drawn anew; new processes for each call."""
    shuffler = random.Random(seed)
    served = {
        BARE: BARE,
        AGAIN: "peers",
        **({WAITING: BARE} if framework in RUNS_AHEAD else {}),
        **dict.fromkeys(WINDOWS, "prepared"),
        **dict.fromkeys(PEERS[framework] if peers else (), "peers"),
    }
    orders = [shuffler.sample(list(served), len(served)) for _ in range(cycles)]
    windows = [arm for order in orders for arm in order if arm in WINDOWS]
    with _servers(framework, size, threads, windows) as servers:
        for order in orders:
            found: dict[str, Stretch] = {}
            for arm in order:
                found |= servers[served[arm]].stretch(arm)
            yield found


@contextmanager
def _servers(framework: str, size: str, threads: int, windows: Sequence[str]) -> Iterator[dict[str, Server]]:
    with ExitStack() as ends:
        servers = {
            kind: ends.enter_context(Server(framework, size, threads, kind, windows if kind == "prepared" else ()))
            for kind in (BARE, "peers", "prepared")
        }
        for server in servers.values():
            server.wait()
        yield servers


def environment(threads: int) -> dict[str, str]:
    """Return the environment of a process whose operators may use so many threads."""
    paths = [str(_FOLDER), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, **dict.fromkeys(_THREADS, str(threads)), "PYTHONPATH": os.pathsep.join(paths)}
