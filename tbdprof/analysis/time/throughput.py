"""How fast training goes once it is steady, what the host does meanwhile, and what watching it costs.

Throughput is defined as in the TBD paper: units of work over elapsed time, from the clean windows alone, with a
bootstrap interval over their blocks. (Section III-D-3 of the paper counts samples, for speech seconds of audio.)
"""

from collections.abc import Iterator, Sequence

import numpy as np

from tbdprof.analysis.time.consumption import counted_in, padding_shares, totals
from tbdprof.analysis.time.time_blocks import mean_ratio_interval, of_steps, of_windows, ratio_interval
from tbdprof.facts.arrays import Floats
from tbdprof.facts.consumed import StepCountKind
from tbdprof.facts.counters import DATA_WAIT, MACHINE_CPU, PROCESS_CPU
from tbdprof.facts.recording import Recording, Window
from tbdprof.facts.windows import CLEAN, KERNELS, MEMORY, SAMPLED
from tbdprof.results.time import CpuUtilization, OtherUnit, Overhead, Rate, Throughput

DRIFT = 0.05  # clean windows whose intervals are apart and whose rates differ by more than this disagree


def throughput(recording: Recording) -> Throughput | None:
    """Return the throughput of the clean windows, None where none has a block."""
    windows = [window for window in recording.named(CLEAN) if len(window.table("step"))]
    if not windows:
        return None
    blocks = of_windows(windows)
    rates = tuple(_rate(of_windows([window]).units, of_windows([window]).seconds) for window in windows)
    return Throughput(
        rate=_rate(blocks.units, blocks.seconds),
        unit=recording.run.unit,
        step_seconds=float(blocks.seconds.sum() / blocks.steps.sum()),
        windows=rates,
        drifted=_drifted(rates) if len(rates) > 1 else None,
        others=tuple(_others(recording, windows)),
        padding=padding_shares(recording),
    )


def _others(recording: Recording, windows: Sequence[Window]) -> Iterator[OtherUnit]:
    strings = recording.strings
    names = dict.fromkeys(name for window in windows for name in totals(window, strings, StepCountKind.UNITS))
    for name in names:
        blocks = of_steps([counted_in(window, strings, name) for window in windows])
        yield OtherUnit(name, _rate(blocks.units, blocks.seconds))


def _rate(units: Floats, seconds: Floats) -> Rate:
    return Rate(float(units.sum() / seconds.sum()), ratio_interval(units, seconds))


def _drifted(rates: Sequence[Rate]) -> bool:
    slow, fast = min(rates, key=lambda rate: rate.per_s), max(rates, key=lambda rate: rate.per_s)
    if slow.interval and fast.interval and slow.interval[1] >= fast.interval[0]:
        return False
    return fast.per_s > (1 + DRIFT) * slow.per_s


def overhead(recording: Recording, name: str) -> Overhead | None:
    """Return what the windows of a name cost against the clean windows beside them, None without both.

    What settles does not count: a memory window's first step, a kernels or sampled window's first block.
    """
    watched = [window for window in recording.named(name) if len(window.table("step")) > 1]
    beside = [neighbour for window in watched for neighbour in _neighbours(recording, window)]
    if not watched or not beside:
        return None
    slow = of_windows(watched, skip_first_step=name == MEMORY, skip_first_block=name in (KERNELS, SAMPLED))
    if not len(slow.steps):
        return None
    bare = of_windows(beside)
    ratio = (slow.seconds.sum() / slow.steps.sum()) / (bare.seconds.sum() / bare.steps.sum())
    return Overhead(float(ratio), mean_ratio_interval(slow.step_seconds, bare.step_seconds))


def _neighbours(recording: Recording, window: Window) -> list[Window]:
    return [
        other
        for other in recording.named(CLEAN)
        if abs(other.ordinal - window.ordinal) == 1 and len(other.table("step"))
    ]


def cpu_utilization(recording: Recording) -> CpuUtilization | None:
    """Return the load on the cores during the clean windows, None where it was not sampled or the cores are unknown."""
    process = machine = elapsed = 0.0
    for window in recording.named(CLEAN):
        spent, seconds = _growth(recording, window, PROCESS_CPU)
        process, elapsed = process + spent, elapsed + seconds
        machine += _growth(recording, window, MACHINE_CPU)[0]
    cores = recording.run.cores
    if not elapsed or not cores:
        return None
    affinity = recording.run.affinity_cores or cores
    others = max(machine - process, 0.0) / (affinity * elapsed)
    return CpuUtilization(process / (cores * elapsed), others, cores, affinity)


def data_wait(recording: Recording) -> float | None:
    """Return the share of the clean windows in which the loop waited for batches, None where it did not tell."""
    told = [_growth(recording, window, DATA_WAIT) for window in recording.named(CLEAN)]
    elapsed = sum(seconds for _, seconds in told)
    return sum(waited for waited, _ in told) / elapsed if elapsed else None


def _growth(recording: Recording, window: Window, counter: str) -> tuple[float, float]:
    """Return how much a counter grew over a window, and in how many seconds."""
    samples = window.table("sample")
    names = np.array([recording.strings[int(index)] for index in samples["counter"]])
    mine = samples[names == counter] if len(samples) else samples
    if len(mine) < 2:
        return 0.0, 0.0
    return float(mine["value"][-1] - mine["value"][0]), float(mine["time_ns"][-1] - mine["time_ns"][0]) / 1e9
