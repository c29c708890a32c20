"""What watching costs: ResNet-50 at batch 8, bare against each window, in interleaved pairs within one process.

    python tests/benchmarks/overhead.py [torch] [mxnet] [--pairs N] [--batch-size N] [--image-size N]

Each cycle measures, in an order drawn anew, two bare stretches, and one inside a window of each kind; a window's ratio
is its time per step over the first bare stretch's of the same cycle. Printed is the mean ratio with its 95 % bootstrap
interval, and bare over bare for what the machine's noise alone does. Exits with 1 where the interval of a ratio lies
above its bound.
"""

import argparse
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np

from tbdprof import suite
from tbdprof.analysis.time.time_blocks import mean_interval, of_windows
from tbdprof.collect.host import usable_cores
from tbdprof.hooks import FrameworkHook, Setting, load
from tbdprof.loop.new_run import new_run
from tbdprof.loop.plan import Plan
from tbdprof.loop.profiler import LoopProfiler
from tbdprof.suite.workload import Workload

BOUNDS = {"clean": 1.01, "memory": 1.05, "kernels": 1.05}
STEPS = 2  # timed in each bare or clean stretch
WATCHED_STEPS = 3  # of the other windows; the first one settles


def prepared(framework: str) -> FrameworkHook:
    """Return a hook that watches the framework as `tbdprof run` does."""
    hook = load(framework)
    hook.prepare(Setting("cpu", threads=max(1, int(usable_cores()))))
    if framework == "mxnet":  # a second hook in a process goes without MXNet's counter, `tbdprof run` does not
        count_again(hook)
    return hook


def count_again(hook: FrameworkHook) -> None:
    """Have MXNet count, and the hook read the counters, as in a process that begins with the hook."""
    import mxnet

    from tbdprof.hooks.on_mxnet.session import layout, profiler

    profiler.configure(symbolic=False, api=False)
    mxnet.profiler.set_state("run")
    mxnet.profiler.pause()
    allocator = hook._joined.allocator  # type: ignore[attr-defined]
    allocator.counters.update(layout.counters(allocator.storage_profiler))


def bare(framework: str, workload: Workload) -> float:
    """Return the time per step with nothing watching, in seconds; only reading the loss's device waits."""
    synchronize = synchronizer(framework)
    synchronize()
    begun = time.perf_counter()
    for _ in range(STEPS):
        workload.step()
    synchronize()
    return (time.perf_counter() - begun) / STEPS


def synchronizer(framework: str) -> Callable[[], None]:
    """Return what waits for a framework's work on the CPU."""
    if framework == "mxnet":
        import mxnet

        return mxnet.nd.waitall  # type: ignore[no-any-return]
    return lambda: None


def inside_clean(framework: str, workload: Workload) -> float:
    """Return the time per step of a clean window in seconds, as the loop sees it: what lies between blocks counts."""
    with watching(framework, workload, ("clean",)) as profiler:
        begun = time.perf_counter()
        for _ in range(STEPS):
            profiler.step(workload.step())
        return (time.perf_counter() - begun) / STEPS


def inside(window: str, framework: str, workload: Workload) -> float:
    """Return the time per step of a memory or kernels window in seconds, without the step that settles it."""
    with watching(framework, workload, (window,)) as profiler:
        while profiler.active:
            profiler.step(workload.step())
    blocks = of_windows(profiler.recording.named(window), skip_first_step=True)
    return float(blocks.seconds.sum() / blocks.steps.sum())


def watching(framework: str, workload: Workload, windows: tuple[str, ...]) -> LoopProfiler:
    """Return a profiler of some windows, with the framework watched as `tbdprof run` watches it."""
    hook = prepared(framework)
    hook.watch([workload.model], [workload.optimizer], list(workload.inputs))  # type: ignore[call-overload]
    # Clean blocks are as long as by default.
    plan = Plan(warmup=0, memory_steps=WATCHED_STEPS, kernel_steps=WATCHED_STEPS, windows=windows)
    return LoopProfiler(hook, new_run("resnet50", framework), plan)


def measure(framework: str, pairs: int, batch_size: int, image_size: int) -> bool:
    """Print the ratios of one framework; return whether all are within their bounds."""
    hook = prepared(framework)
    options = {"image_size": image_size}
    config = suite.configure(suite.find("resnet50"), batch_size=batch_size, device="cpu", options=options)
    workload = suite.build("resnet50", framework, config)
    for _ in range(3):
        workload.step()
    hook.close()
    arms: dict[str, Callable[[], float]] = {
        "bare": lambda: bare(framework, workload),
        "bare again": lambda: bare(framework, workload),
        "clean": lambda: inside_clean(framework, workload),
        "memory": lambda: inside("memory", framework, workload),
        "kernels": lambda: inside("kernels", framework, workload),
    }
    times = interleaved(arms, pairs)
    print(f"{framework}: {np.median(times['bare']):.3f} s a bare step (median), {pairs} pairs")
    return all([said(name, times) for name in ("bare again", *BOUNDS)])  # noqa: C419 - say them all


def interleaved(arms: dict[str, Callable[[], float]], cycles: int) -> dict[str, list[float]]:
    """Return the measurements of each arm, taken in cycles of random order."""
    times: dict[str, list[float]] = {name: [] for name in arms}
    shuffler = random.Random(0)
    for _ in range(cycles):
        for name in shuffler.sample(list(arms), len(arms)):
            times[name].append(arms[name]())
    return times


def said(name: str, times: dict[str, list[float]]) -> bool:
    """Print a ratio to bare with its interval; return whether it is within its bound."""
    ratios = np.array(times[name]) / np.array(times["bare"])
    low, high = mean_interval(ratios) or (float("nan"),) * 2
    bound = BOUNDS.get(name)
    verdict = "" if bound is None else f"  lower end {'within' if low <= bound else 'ABOVE'} {bound}"
    print(f"  {name:<10} / bare  {ratios.mean():.4f} [{low:.4f}, {high:.4f}]{verdict}", flush=True)
    return bound is None or low <= bound


def main(arguments: Sequence[str]) -> int:
    """Measure each framework in a process of its own."""
    parser = argparse.ArgumentParser()
    parser.add_argument("frameworks", nargs="*", default=["torch", "mxnet"])
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.here:
        return 0 if measure(asked.frameworks[0], asked.pairs, asked.batch_size, asked.image_size) else 1
    options = [f"--{name.replace('_', '-')}={getattr(asked, name)}" for name in ("pairs", "batch_size", "image_size")]
    codes = [subprocess.call([sys.executable, __file__, name, "--here", *options]) for name in asked.frameworks]
    return max(codes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
