"""What watching costs on a card: bare against each window, in interleaved pairs within one process.

PM sampling is measured beside a clean window, so that what kernels windows cost is not in it.
"""

import os
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from gpu import nets, setting
from gpu.nets import Net
from gpu.schedule import LIMIT, Check, Verdict, judged
from gpu.setting import DEVICE, synchronize

from tbdprof.analysis.device.driver import clock
from tbdprof.analysis.time.time_blocks import mean_interval, of_windows
from tbdprof.collect import Collector
from tbdprof.collect.gpu.nvml import NvmlSampler
from tbdprof.collect.host_load import HostLoad
from tbdprof.collect.pm.collector import CounterSampler
from tbdprof.errors import UnavailableError
from tbdprof.facts.windows import SAMPLED
from tbdprof.hooks import Setting, load
from tbdprof.launch.prepared import prepared
from tbdprof.loop.instruments import Instruments
from tbdprof.loop.new_run import new_run
from tbdprof.loop.plan import Plan
from tbdprof.loop.profiler import LoopProfiler

PM = "PM sampling"
BOUNDS = {"clean": 1.01, "kernels": 1.03, "memory": 1.05, PM: 1.02}
PAIRS = setting.size(30, 2)
BARE_STEPS = 10
LEFT_S = 15.0  # of a check's time, to begin and to judge
BLOCK = 4  # steps; of a window with kernels the first block settles

Arm = Callable[[], float]


def plan(window: str) -> Plan:
    """Return the plan of one short window."""
    return Plan(
        warmup=0,
        steps=BARE_STEPS,
        memory_steps=BLOCK,
        kernel_steps=2 * BLOCK,
        kernel_block_steps=BLOCK,
        windows=(window,),
    )


def bare(net: Net) -> float:
    """Return the seconds of a step with nothing watching."""
    synchronize()
    begun = time.perf_counter()
    for _ in range(BARE_STEPS):
        net.step()
    synchronize()
    return (time.perf_counter() - begun) / BARE_STEPS


def instruments_of(arm: str) -> Instruments:
    """Return what is on in a window as in a run, without looking each time whether it can be had."""
    collectors: list[Collector] = [HostLoad()] if arm in ("clean", PM) else []
    collectors += [] if setting.ON_CPU else [NvmlSampler(0)]
    if arm == PM:
        collectors.insert(0, CounterSampler(DEVICE))
    return Instruments({window_of(arm): collectors})


def window_of(arm: str) -> str:
    """Return the name of the window that an arm records."""
    return "clean" if arm == PM else arm


def inside(arm: str, net: Net, precision: str, clocks: dict[str, list[float]]) -> float:
    """Return the seconds of a step in a window, without what settles it, and keep the clock it was taken at.

    Raises UnavailableError where the window could not be recorded as it should be.
    """
    window = window_of(arm)
    with prepared("torch", Setting(DEVICE, precision=setting.precision(precision))) as hook:
        hook.watch(net.models, net.optimizers)
        run = new_run("resnet50", "torch", precision=precision)
        with LoopProfiler(hook, run, plan(window), instruments=instruments_of(arm)) as profiler:
            while profiler.active:
                profiler.step(net.step())
    recording = profiler.recording
    lacking = recording.missing.get(SAMPLED if arm == PM else window)
    if lacking is not None or not recording.named(window):
        raise UnavailableError(lacking or f"no {window} window was recorded")
    measured = clock(recording, window)
    if measured is not None:
        clocks.setdefault(arm, []).append(measured.mean_hz)
    watched = {"skip_first_step": window == "memory", "skip_first_block": window == "kernels"}
    blocks = of_windows(recording.named(window), **watched)
    return float(blocks.seconds.sum() / blocks.steps.sum())


def interleaved(arms: dict[str, Arm], pairs: int, until: Callable[[], bool] = lambda: True) -> dict[str, list[float]]:
    """Return the measurements of each arm, in cycles of random order, as long as there is time."""
    times: dict[str, list[float]] = {name: [] for name in arms}
    shuffler = random.Random(0)
    for _ in range(pairs):
        if not until():
            break
        for name in shuffler.sample(list(arms), len(arms)):
            times[name].append(arms[name]())
    return times


def ratios(times: dict[str, Sequence[float]]) -> dict[str, tuple[float, float, float]]:
    """Return each arm's mean ratio to bare with its 95 % interval."""
    base, found = np.array(times["bare"]), {}
    for name in times:
        each = np.array(times[name]) / base
        found[name] = (float(each.mean()), *(mean_interval(each) or (float("nan"), float("nan"))))
    return found


def check(batch_size: int, windows: tuple[str, ...], limit_s: float) -> Check:
    """Return the check of what windows cost at a batch, by interval over interleaved pairs."""

    def run(_folder: Path) -> Verdict:
        begun, clocks = time.monotonic(), dict[str, list[float]]()
        outer = load("torch")
        outer.prepare(Setting(DEVICE, precision="bf16", seed=0))  # bare steps compute as the watched ones
        net = nets.suite_net("resnet50", batch_size, "bf16")
        seconds = nets.seconds_per_step(net, 20)
        arms = {"bare": lambda: bare(net), "bare again": lambda: bare(net)}
        arms |= {each: (lambda each=each: inside(each, net, "bf16", clocks)) for each in windows}
        given = float(os.environ.get(LIMIT, limit_s)) - LEFT_S
        times = interleaved(arms, PAIRS, lambda: time.monotonic() - begun < given)
        found = ratios(times)
        pairs = len(times["bare"])
        holds = {f"lower end of {each} ≤ {BOUNDS[each]}": found[each][1] <= BOUNDS[each] for each in windows}
        figures = {
            "pairs": pairs,
            "seconds a bare step": seconds,
            "ratio and interval": found,
            "sm_clock_hz": {name: sum(each) / len(each) for name, each in clocks.items()},
        }
        return judged("cost of watching", {f"{PAIRS} pairs": pairs >= PAIRS, **holds}, figures)

    named = "-sampling" if windows == (PM,) else ""
    return Check(f"cost{named}-{batch_size}", limit_s, run)
