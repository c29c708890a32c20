"""A loop of a fake framework, each step by the fake clock, and its profiler."""

from collections.abc import Callable
from pathlib import Path

from fakes import FakeClock, FakeHook
from make import run

from tbdprof.loop.plan import Plan
from tbdprof.loop.profiler import LoopProfiler

MEMORY = ("clean", "memory", "clean")
SHORT = Plan(warmup=2, steps=4, memory_steps=3, windows=MEMORY)
WHOLE = Plan(warmup=2, steps=4, memory_steps=3, kernel_steps=3)


def profiler(
    plan: Plan = SHORT, hook: FakeHook | None = None, path: Path | None = None
) -> tuple[LoopProfiler, FakeHook]:
    hook = hook or FakeHook()
    return LoopProfiler(hook, run(), plan, path=path, clock=hook.clock), hook


def train(prof: LoopProfiler, clock: FakeClock, steps: int, seconds: Callable[[int], float] = lambda step: 0.1) -> None:
    for step in range(steps):
        clock.sleep(seconds(step))
        prof.step(8)


def windows(prof: LoopProfiler) -> list[tuple[str, str, int]]:
    return [(window.name, window.state, len(window.table("step"))) for window in prof.recording.windows]
