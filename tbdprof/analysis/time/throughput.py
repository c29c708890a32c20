"""Throughput of steady training, the host's load meanwhile, and the overhead of profiling.

Throughput is that of the TBD paper (Zhu et al., IISWC 2018, arXiv:1803.06905): units of work over elapsed time. (Its
section III-D-3 counts samples, or seconds of audio for speech.) Throughput comes from the clean windows alone, with a
bootstrap interval over their blocks.
"""

from collections.abc import Iterator, Mapping, Sequence

from tbdprof.analysis.time.consumption import counted_in, padding_shares, totals
from tbdprof.analysis.time.counted import growth
from tbdprof.analysis.time.given import Given, why_no_samples
from tbdprof.analysis.time.time_blocks import mean_ratio_interval, of_steps, of_windows, ratio_interval
from tbdprof.analysis.without import was_never_meant, why_without
from tbdprof.facts.arrays import Floats
from tbdprof.facts.consumed import StepCountKind
from tbdprof.facts.counters import DATA_WAIT, MACHINE_CPU, PROCESS_CPU, RANKS_CPU
from tbdprof.facts.keys import ReasonFor
from tbdprof.facts.recording import Recording, Window
from tbdprof.facts.records import NOTABLE_LOAD
from tbdprof.facts.windows import CLEAN, KERNELS, MEMORY, SAMPLED
from tbdprof.results.found import Found, because
from tbdprof.results.reasons import NO_RANK, NO_WINDOW, NOT_REPORTED, ONE_BLOCK
from tbdprof.results.time import CpuUtilization, OtherUnit, Overhead, Rate, Throughput

DRIFT = 0.05  # clean windows disagree if their intervals are disjoint and their rates differ by more
TICK_S = 0.01  # the clock of CPU time counts in such steps
DISCARDED = {MEMORY: "step", KERNELS: "block", SAMPLED: "block"}  # the first of each window: warm-up


def throughput(recording: Recording, given: Found[Given]) -> Found[Throughput | None]:
    """Return the throughput of the clean windows, or why none has a block; `given` is what each step was given."""
    windows = [window for window in recording.named(CLEAN) if len(window.table("step"))]
    if not windows:
        return because(why_without(recording, CLEAN))
    blocks = of_windows(windows)
    steps = given.value
    rates = tuple(_rate(of_windows([window]).units, of_windows([window]).seconds) for window in windows)
    found = Throughput(
        rate=_rate(blocks.units, blocks.seconds),
        unit=recording.run.unit,
        step_seconds=float(blocks.seconds.sum() / blocks.steps.sum()),
        windows=rates,
        drifted=_drifted(rates) if len(rates) > 1 else None,
        others=(*_others(recording, windows), *_of_given(steps, windows)),
        padding=padding_shares(recording),
        per_step=steps.per_step,
        samples_from=steps.samples_from,
    )
    missing = {} if found.rate.interval else {"ci95": ONE_BLOCK}
    missing |= data_wait(recording).under("data_wait")
    if found.samples_per_unit(recording.run) is None:
        missing |= dict.fromkeys(("samples_per_s", "ci95"), why_no_samples(recording, given))
    return Found(found, missing)


def _others(recording: Recording, windows: Sequence[Window]) -> Iterator[OtherUnit]:
    strings = recording.strings
    names = dict.fromkeys(name for window in windows for name in totals(window, strings, StepCountKind.UNITS))
    for name in names:
        blocks = of_steps([counted_in(window, strings, name) for window in windows])
        yield OtherUnit(name, _rate(blocks.units, blocks.seconds))


def _of_given(steps: Given, windows: Sequence[Window]) -> Iterator[OtherUnit]:
    blocks = of_windows(windows)
    for unit, count in steps.per_step.items():
        yield OtherUnit(unit, _rate(count * blocks.steps, blocks.seconds))


def _rate(units: Floats, seconds: Floats) -> Rate:
    return Rate(float(units.sum() / seconds.sum()), ratio_interval(units, seconds))


def _drifted(rates: Sequence[Rate]) -> bool:
    slow, fast = min(rates, key=lambda rate: rate.per_s), max(rates, key=lambda rate: rate.per_s)
    if slow.interval and fast.interval and slow.interval[1] >= fast.interval[0]:
        return False
    return fast.per_s > (1 + DRIFT) * slow.per_s


def overhead(recording: Recording, name: str) -> Found[Overhead | None]:
    """Return the overhead of the windows of this name over the clean windows beside them, or what it lacks.

    The warm-up does not count: a memory window's first step, a kernels or sampled window's first block.
    """
    watched = [window for window in recording.named(name) if len(window.table("step")) > 1]
    beside = [neighbour for window in watched for neighbour in _neighbours(recording, window)]
    if not watched or not beside:
        return because(_why_no_overhead(recording, name))
    discarded = DISCARDED[name]
    slow = of_windows(watched, skip_first_step=discarded == "step", skip_first_block=discarded == "block")
    if not len(slow.steps):
        return because(_why_no_overhead(recording, name))
    bare = of_windows(beside)
    ratio = (slow.seconds.sum() / slow.steps.sum()) / (bare.seconds.sum() / bare.steps.sum())
    found = Overhead(float(ratio), mean_ratio_interval(slow.step_seconds, bare.step_seconds))
    return Found(found, {} if found.interval else {"ci95": ONE_BLOCK})


def _why_no_overhead(recording: Recording, name: str) -> str:
    if name == KERNELS and was_never_meant(recording, name):
        return NO_WINDOW
    steps = f"steps after the {DISCARDED[name]} that is discarded as warm-up"
    return f"needs a {name} window with {steps}, next to a clean window"


def _neighbours(recording: Recording, window: Window) -> list[Window]:
    return [
        other
        for other in recording.named(CLEAN)
        if abs(other.ordinal - window.ordinal) == 1 and len(other.table("step"))
    ]


def cpu_utilization(recording: Recording, no_clean_step: str | None = None) -> Found[CpuUtilization | None]:
    """Return the load on the cores in the clean windows, or why it is not known.

    `no_clean_step` is the reason if no clean window has a step.
    """
    process = machine = ranks = elapsed = 0.0
    for window in recording.named(CLEAN):
        spent, seconds = growth(recording, window, PROCESS_CPU)
        process, elapsed = process + spent, elapsed + seconds
        machine += growth(recording, window, MACHINE_CPU)[0]
        ranks += growth(recording, window, RANKS_CPU)[0]
    cores = recording.run.cores
    if not elapsed or not cores:
        return because(_why_no_load(recording.missing, no_clean_step))
    affinity = recording.run.affinity_cores or cores
    others = max(machine - process - ranks, 0.0) / (affinity * elapsed)
    of_ranks = None if recording.run.rank is None else ranks / (affinity * elapsed)
    feigned = TICK_S * len(recording.named(CLEAN)) / elapsed  # each core's time may be a tick off in each window
    disturbed = others - feigned > NOTABLE_LOAD
    found = CpuUtilization(process / (cores * elapsed), others, cores, affinity, disturbed, of_ranks)
    return Found(found, {"ranks": NO_RANK} if of_ranks is None else {})


def _why_no_load(recorded: Mapping[str, str], no_clean_step: str | None) -> str:
    known = (recorded.get(ReasonFor.CPU), recorded.get(ReasonFor.THROUGHPUT), no_clean_step)
    return next((reason for reason in known if reason is not None), "not sampled in the clean windows")


def data_wait(recording: Recording) -> Found[float | None]:
    """Return the share of the clean windows in which the loop waited for batches, or why it is not known."""
    waits = [growth(recording, window, DATA_WAIT) for window in recording.named(CLEAN)]
    elapsed = sum(seconds for _, seconds in waits)
    return Found(sum(waited for waited, _ in waits) / elapsed) if elapsed else because(NOT_REPORTED)
