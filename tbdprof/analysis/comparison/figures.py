"""The figures of two sides beside each other: throughput, time by phase, memory, utilization, kernels and layers."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tbdprof.analysis.comparison import waits
from tbdprof.analysis.comparison.names import (
    BYTES,
    COUNT,
    PEAK_MEMORY,
    RATE,
    SECONDS,
    SHARE,
    STEP_TIME,
    THROUGHPUT,
    WITH_WAITS,
    is_exact,
)
from tbdprof.analysis.comparison.statistics import Estimate, effect, exact, ratio_of_sums
from tbdprof.results.compare import BETWEEN, EVENED, FREED, WITHIN, Change
from tbdprof.results.memory import CATEGORIES
from tbdprof.results.summary import Summary

Runs = Sequence[Summary]
MOST_IDLE = 0.05  # of the cores, where processes that compete for them leave none
OTHER_UNITS = "the sides count their work in different units, and not in samples"
Key = tuple[str | None, str]  # name and phase; a layer's name is None for what is in none, "" for the model itself
Rows = dict[Key, float]
Read = Callable[[Summary], float | None]


def change(name: str, path: str, unit: str, baseline: Runs, other: Runs, read: Read, phase: str = "") -> Change:
    """Return how a figure changed that `read` takes from a summary; nothing is compared if a recording lacks it."""
    sides = [[read(each) for each in side] for side in (baseline, other)]
    estimates = [[_estimate(value, path) for value in side if value is not None] for side in sides]
    lacking = [summary for side in (baseline, other) for summary in side if read(summary) is None]
    reason = lacking[0].missing.get(path, "") if lacking else ""
    return between(name, path, unit, estimates[0], estimates[1], reason=reason, is_whole=not lacking, phase=phase)


def between(
    name: str | None,
    path: str,
    unit: str,
    baseline: Sequence[Estimate],
    other: Sequence[Estimate],
    *,
    reason: str = "",
    is_whole: bool = True,
    phase: str = "",
) -> Change:
    """Return how a figure changed; without `is_whole`, a recording lacks it, and there is no ratio."""
    if not is_whole or not baseline or not other:
        one, two = (float(np.mean([each.value for each in side])) if side else None for side in (baseline, other))
        return Change(name, path, unit, one, two, reason=reason or "not measured", phase=phase)
    return Change(name, path, unit, *effect(baseline, other), phase=phase)


def _estimate(value: float, path: str) -> Estimate:
    return exact(value) if is_exact(path) else Estimate(value)


def throughput(baseline: Runs, other: Runs) -> Change:
    """Return how the throughput changed: in samples per second if all sides know them, else in the unit they share."""
    runs = (*baseline, *other)
    if reason := next((each.missing.get("throughput", "not measured") for each in runs if not each.throughput), None):
        return Change(THROUGHPUT, THROUGHPUT, RATE, None, None, reason=reason)
    units = {each.throughput.unit for each in runs if each.throughput}
    in_samples = all(_samples_per_unit(each) for each in runs)
    if len(units) > 1 and not in_samples:
        return Change(THROUGHPUT, THROUGHPUT, RATE, None, None, reason=OTHER_UNITS)
    is_own = len(units) == 1 and all(_samples_per_unit(each) in (1.0, None) for each in runs)
    unit = units.pop() if is_own or not in_samples else "samples"
    freed = _leaves_out_waits(runs)
    rates = [[_rate(each, in_samples=in_samples, freed=freed) for each in side] for side in (baseline, other)]
    return _named(_evened(between(THROUGHPUT, THROUGHPUT, f"{unit}/s", *rates), baseline, other), freed=freed)


def _leaves_out_waits(runs: Runs) -> bool:
    """Return whether other processes disturbed one of the runs, and the waits for a core can be left out of all."""
    is_disturbed = any(each.cpu is not None and each.cpu.disturbed for each in runs)
    return is_disturbed and waits.can_be_left_out([each.recording for each in runs])


def _samples_per_unit(summary: Summary) -> float | None:
    return None if summary.throughput is None else summary.throughput.samples_per_unit(summary.recording.run)


def _rate(summary: Summary, *, in_samples: bool, freed: bool) -> Estimate:
    found = ratio_of_sums(*waits.clean(summary.recording, "units", without_waits=freed))
    return found._replace(value=found.value * (_samples_per_unit(summary) or 1.0)) if in_samples else found


def step_times(baseline: Runs, other: Runs) -> list[Change]:
    """Return how the time of a clean step changed; where waits for a core are left out of it, also how with them."""
    freed = _leaves_out_waits((*baseline, *other))
    found = _evened(_step_time("step time", STEP_TIME, baseline, other, freed=freed), baseline, other, is_time=True)
    if not freed:
        return [found]
    return [_named(found, freed=True), _step_time("step time with waits", WITH_WAITS, baseline, other, freed=False)]


def _step_time(name: str, path: str, baseline: Runs, other: Runs, *, freed: bool) -> Change:
    whole = all(each.throughput for each in (*baseline, *other))
    times = [
        [
            ratio_of_sums(*reversed(waits.clean(each.recording, "steps", without_waits=freed)))
            for each in side
            if each.throughput
        ]
        for side in (baseline, other)
    ]
    return between(name, path, SECONDS, *times, is_whole=whole)


def _named(change: Change, *, freed: bool) -> Change:
    return replace(change, basis=FREED) if freed and change.basis == BETWEEN else change


def _evened(change: Change, baseline: Runs, other: Runs, *, is_time: bool = False) -> Change:
    """Extend the interval of one recording a side to the ratio that an equal share of the cores would have given.

    That is done where other processes took a notable part of a CPU's cores and left none idle. They come and go between
    two recordings, and the variation within each does not show it; that each got another share of the cores does. Only
    the part of a step in which operators run is taken to scale with that share, and all of it if that is not known.
    """
    runs = (*baseline, *other)
    shares = [0.0 if each.cpu is None else each.cpu.process * each.cpu.cores for each in runs]
    if change.basis != WITHIN or change.interval is None or not all(shares) or not any(map(_is_crowded, runs)):
        return change
    busy = max(1.0 if each.step_time is None else each.step_time.busy for each in runs)
    factor = 1 + busy * ((shares[1] / shares[0] if is_time else shares[0] / shares[1]) - 1)
    low, high = change.interval[0] * min(1.0, factor), change.interval[1] * max(1.0, factor)
    one = change.baseline or 0.0
    return replace(change, interval=(low, high), change_interval=((low - 1) * one, (high - 1) * one), basis=EVENED)


def _is_crowded(summary: Summary) -> bool:
    """Return whether other processes took cores from a run on a CPU: a notable part, and hardly one was idle."""
    cpu = summary.cpu
    if cpu is None or not cpu.disturbed or summary.recording.run.device != "cpu":
        return False
    return cpu.process * cpu.cores + cpu.others * cpu.affinity_cores > (1 - MOST_IDLE) * cpu.affinity_cores


def figures(baseline: Runs, other: Runs) -> tuple[Change, ...]:
    """Return the figures that summarize a run; those that no recording has are left out."""
    made = [
        *step_times(baseline, other),
        *(change(name, path, unit, baseline, other, _within(path)) for name, path, unit in _FIGURES),
    ]
    return tuple(each for each in made if each.baseline is not None or each.other is not None)


_FIGURES = (
    ("peak memory", PEAK_MEMORY, BYTES),
    ("device memory", "device_memory.used_bytes", BYTES),
    ("device busy", "utilization.device_busy.value", SHARE),
    ("FLOP utilization", "utilization.mfu.value", SHARE),
    ("FP32 utilization", "utilization.fp32_flop.value", SHARE),
    ("CPU utilization", "utilization.cpu.value", SHARE),
    ("waits for batches", "throughput.data_wait", SHARE),
    ("device idle", "time.idle.total", SHARE),
    ("kernels a step", "time.kernels_per_step", COUNT),
    ("energy a unit", "energy.joules_per_unit", "J"),
    ("power", "energy.watts", "W"),
)
_PLACES: Mapping[str, tuple[str, ...]] = {  # where a summary has a figure, by its path in the JSON report
    PEAK_MEMORY: ("memory", "peak_bytes"),
    "device_memory.used_bytes": ("device_memory", "used_bytes"),
    "utilization.device_busy.value": ("utilization", "busy"),
    "utilization.mfu.value": ("utilization", "flop", "value"),
    "utilization.fp32_flop.value": ("utilization", "fp32", "value"),
    "utilization.cpu.value": ("cpu", "process"),
    "throughput.data_wait": ("data_wait",),
    "time.idle.total": ("step_time", "idle", "total"),
    "time.kernels_per_step": ("step_time", "kernels"),
    "energy.joules_per_unit": ("energy", "joules_per_unit"),
    "energy.watts": ("energy", "watts"),
}


def _within(path: str) -> Read:
    def read(summary: Summary) -> float | None:
        found: Any = summary
        for name in _PLACES[path]:
            found = None if found is None else getattr(found, name)
        return None if found is None else float(found)

    return read


def phases(baseline: Runs, other: Runs) -> tuple[Change, ...]:
    """Return the time of each phase of a step in the kernels windows, and of the whole step."""
    found = _rows(baseline, other, _phases, SECONDS, lambda key: f"time.phases.{key[0]}.seconds")
    whole = change("step", "time.step_s", SECONDS, baseline, other, _step)
    return (*found, whole) if found else ()


def _phases(summary: Summary) -> Rows | None:
    return None if summary.step_time is None else {(each.name, ""): each.seconds for each in summary.step_time.phases}


def _step(summary: Summary) -> float | None:
    return None if summary.step_time is None else summary.step_time.step_seconds


def categories(baseline: Runs, other: Runs) -> tuple[Change, ...]:
    """Return the memory of each category at the peak."""
    return _rows(baseline, other, _categories, BYTES, lambda key: f"memory.at_peak.{key[0]}")


def _categories(summary: Summary) -> Rows | None:
    memory = summary.memory
    return None if memory is None else {(name, ""): float(memory.category_at_peak(name)) for name in CATEGORIES}


def roles(baseline: Runs, other: Runs) -> tuple[Change, ...]:
    """Return the memory of each role at the peak."""
    return _rows(baseline, other, _roles, BYTES, lambda key: f"memory.roles_at_peak.{key[0]}")


def _roles(summary: Summary) -> Rows | None:
    sizes = None if summary.memory is None else summary.memory.roles_at_peak
    return None if sizes is None else {(role.name.lower(), ""): float(size) for role, size in sizes.items()}


def kernels(baseline: Runs, other: Runs) -> tuple[Change, ...]:
    """Return the time of each kernel (or operator of a CPU) per step, by name and phase, the longest change first."""
    return _by_change(_rows(baseline, other, _kernels, SECONDS, lambda key: f"kernels[{key[0]} {key[1]}].seconds"))


def _kernels(summary: Summary) -> Rows | None:
    groups = summary.groups
    return None if groups is None else _added(((each.name, each.phase), each.seconds) for each in groups)


def operations(baseline: Runs, other: Runs) -> tuple[Change, ...]:
    """Return the time of each kind of operation per step, which all frameworks share, the longest change first."""
    return _by_change(_rows(baseline, other, _operations, SECONDS, lambda key: f"operations[{key[0]} {key[1]}]"))


def _operations(summary: Summary) -> Rows | None:
    groups = summary.groups
    return None if groups is None else _added(((each.operation, each.phase), each.seconds) for each in groups)


def layers(baseline: Runs, other: Runs) -> tuple[Change, ...]:
    """Return the time of each layer per step, forward and backward together, the longest change first."""
    return _by_change(_rows(baseline, other, _layers, SECONDS, lambda key: f"time_by_layer[{key[0] or ''}]"))


def _layers(summary: Summary) -> Rows | None:
    found = summary.layers
    return None if found is None else {(each.layer, ""): each.seconds for each in found}


def _added(pairs: Iterable[tuple[Key, float]]) -> Rows:
    found: Rows = {}
    for key, value in pairs:
        found[key] = found.get(key, 0.0) + value
    return found


def _by_change(rows: Iterable[Change]) -> tuple[Change, ...]:
    return tuple(sorted(rows, key=lambda each: -abs(each.change)))


def _rows(
    baseline: Runs,
    other: Runs,
    read: Callable[[Summary], Rows | None],
    unit: str,
    path_of: Callable[[Key], str],
) -> tuple[Change, ...]:
    """Return a row for each name that a side has; what no recording of a side has is None there, otherwise 0."""
    found = [[read(each) for each in side] for side in (baseline, other)]
    if any(each is None for side in found for each in side):
        return ()
    known = [[each or {} for each in side] for side in found]
    names = dict.fromkeys(name for side in known for each in side for name in each)
    rows = []
    for name in names:
        path = path_of(name)
        sides = [
            [_estimate(each.get(name, 0.0), path) for each in side] if any(name in each for each in side) else []
            for side in known
        ]
        rows.append(between(name[0], path, unit, *sides, phase=name[1], reason=_where(sides)))
    return tuple(rows)


def _where(sides: Sequence[Sequence[Estimate]]) -> str:
    return "came" if not sides[0] else "went" if not sides[1] else ""
