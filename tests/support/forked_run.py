"""Runs of a fake framework in forked processes, which record into a file for as long as a test lets them."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fakes import FakeHook
from make import run

from tbdprof.facts.file.placing import claim
from tbdprof.loop.plan import Plan
from tbdprof.loop.profiler import LoopProfiler

PLAN = Plan(warmup=2, steps=10, memory_steps=3, kernel_steps=3)
WHOLE = 2 + 3 * 10 + 2 * 3  # steps
STEP_S = 0.02


class ForkedRun:
    """A process that records steps, one after another; `steps` of them, and then it waits to be ended."""

    def __init__(
        self,
        path: Path,
        steps: int,
        *,
        force: bool = False,
        pause_s: float = 0.0,
        step_s: float = STEP_S,
        model: str = "toy",
    ) -> None:
        self.path = path
        self.pid = os.fork()
        if not self.pid:
            try:
                self._record(path, steps, model, force=force, pause_s=pause_s, step_s=step_s)
            finally:
                os._exit(0)

    def _record(self, path: Path, steps: int, model: str, *, force: bool, pause_s: float, step_s: float) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        hook = FakeHook()
        with claim(path, force=force) as claimed:
            time.sleep(pause_s)
            facts = run(model=model, framework_version="1.0", batch_size=8)
            with LoopProfiler(hook, facts, PLAN, path=claimed.path, clock=hook.clock) as profiler:
                for _ in range(steps):
                    time.sleep(step_s)
                    hook.clock.sleep(0.1)
                    profiler.step(8)
                while profiler.active:
                    time.sleep(1)

    def kill(self) -> None:
        """End the process at once."""
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            self.wait()

    def wait(self) -> None:
        """Wait for the end of the process."""
        if self.pid:
            os.waitpid(self.pid, 0)
            self.pid = 0


@contextmanager
def recording_run(path: Path, steps: int = WHOLE, **changes: object) -> Iterator[ForkedRun]:
    """Record in a process that ends with the block at the latest."""
    process = ForkedRun(path, steps, **changes)  # type: ignore[arg-type]
    try:
        yield process
    finally:
        process.kill()
