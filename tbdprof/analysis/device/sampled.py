"""The sampled level: hardware counters sampled beside a kernels window, by kernel and over the whole window.

A fraction is a pipe's active cycles over elapsed cycles, not FLOPs over peak: code that only adds keeps the FP32 pipe
busy, but reaches half of its peak FLOPs. The FP32 pipe executes integer arithmetic too, so its use is an upper bound.
Half of the pipe executes FP32 alone and gives the lower bound (`LITE_PART` of that half's use).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from importlib.util import find_spec
from typing import Any

import numpy as np

from tbdprof.analysis.device.attribution import Intervals, Solution, calibrated, covered, shares, solve
from tbdprof.analysis.device.pm_samples import PmSamples, pm_samples, reported
from tbdprof.analysis.kernels.executions import gather
from tbdprof.analysis.kernels.kernels import Kernels
from tbdprof.analysis.kernels.launches import Launches, by_launch
from tbdprof.analysis.time.throughput import overhead
from tbdprof.facts.arrays import Floats, Ints
from tbdprof.facts.counters import (
    PM_BUSY,
    PM_CLOCK,
    PM_DRAM,
    PM_FP32,
    PM_FP32_LITE,
    PM_LOST,
    PM_RESIDUAL,
    PM_SM_ACTIVE,
    PM_TENSOR,
    PM_WARPS,
)
from tbdprof.facts.keys import ReasonFor
from tbdprof.facts.recording import Recording
from tbdprof.facts.records import Phase
from tbdprof.facts.windows import SAMPLED
from tbdprof.results.found import Found, because, reasons
from tbdprof.results.kernels import Key
from tbdprof.results.levels import Pipes
from tbdprof.results.reasons import GPU_ONLY, NOT_BY_SAMPLER
from tbdprof.results.sampled import (
    ELAPSED,
    LITE_PART,
    WHILE_BUSY,
    Estimate,
    NamedUse,
    Sampled,
    SampledKernels,
    Use,
)
from tbdprof.results.time import Overhead

ATTRIBUTED = (PM_FP32, PM_FP32_LITE, PM_TENSOR, PM_DRAM, PM_SM_ACTIVE)
COURSES = (PM_BUSY, PM_FP32, PM_TENSOR, PM_DRAM)  # in the order in which they are tried for the clocks' offset
LEAST_SAMPLES = 10
MOST_ERROR = 0.05  # a use with a larger standard error is not reported
MOST_GROUPS = 400  # the longest; all others form one more group, without a use of its own
NOISE = 3.0  # standard errors by which a use may exceed 1
NO_KERNELS = (
    "the counters were sampled, but no kernel was recorded beside them: "
    "PM sampling may silence the records of the framework's profiler on this driver"
)
NO_SCIPY = "scipy is not installed, which shares samples out among kernels: pip install 'tbdprof[cuda]'"
NO_WINDOW = "no sampled window was recorded"
NO_SAMPLES = "no sample lies within the counted steps of the sampled window"
NO_OFFSET = (
    "the clocks of samples and of kernels could not be compared, and are taken to agree: "
    "an offset of 50 µs makes a use wrong by some 7 points"
)
_NEVER_BUSY = "neither kernels nor the device's busy counter were recorded"
_NOT_SAID = "the sampler did not report it"


def measure(recording: Recording) -> Found[Sampled | None]:
    """Return the sampled figures for the counted steps of the sampled windows, or why there are no samples."""
    samples = pm_samples(recording)
    if samples is None:
        return because(_why_no_samples(recording))
    found = _measured(recording, samples)
    return Found(found, _missing(found))


def cost(recording: Recording, sampled: Found[Sampled | None]) -> Found[Overhead | None]:
    """Return the overhead of the sampled windows; without it and without samples, both have one reason.

    On a CPU the reason stands even beside an overhead: the windows are there, but nothing was sampled in them.
    """
    found = overhead(recording, SAMPLED)
    if recording.run.device == "cpu":
        return Found(found.value, {"": GPU_ONLY})
    return found if found.value is not None or sampled.reason is None else because(sampled.reason)


def _why_no_samples(recording: Recording) -> str:
    if recording.run.device == "cpu":
        return GPU_ONLY
    return recording.missing.get(ReasonFor.SAMPLED) or (NO_SAMPLES if recording.named(SAMPLED) else NO_WINDOW)


def _missing(found: Sampled) -> dict[str, str]:
    """Return the reason for each figure that is None."""
    missing = {f"elapsed.{name}": NOT_BY_SAMPLER for name, counter in ELAPSED.items() if counter not in found.elapsed}
    for name, counter in (*WHILE_BUSY.items(), ("fp32_pipe_low", PM_FP32_LITE)):
        if counter not in found.while_busy:
            missing[f"while_busy.{name}"] = _NEVER_BUSY if counter in found.elapsed else NOT_BY_SAMPLER
    missing |= reasons({"lost": (found.lost, _NOT_SAID), "clock_residual_s": (found.residual_ns, _NOT_SAID)})
    if found.reason is not None:
        missing |= dict.fromkeys(("kernels", "kernels_busy", "offset"), found.reason)
    elif found.offset is not None and found.offset.found_by is None:
        missing["offset"] = NO_OFFSET
    return missing


def _measured(recording: Recording, found: PmSamples) -> Sampled:
    kernels = gather(recording, SAMPLED)
    if kernels is None or not len(kernels):
        return _whole(recording, found, found.columns.get(PM_BUSY), NO_KERNELS)
    if find_spec("scipy") is None:
        return _whole(recording, found, found.columns.get(PM_BUSY), NO_SCIPY)
    return _attributed(recording, found, kernels)


def pipes(found: Sampled | None) -> dict[Key, Pipes]:
    """Return the pipes' use by kernel name, grid and block, for the kernels that have one."""
    kernels = () if found is None else found.kernels
    return {
        each.key: Pipes(_value(each.use.fp32), _value(each.use.tensor), _value(each.use.fp32_low))
        for each in kernels
        if each.reason is None
    }


def _value(found: Estimate | None) -> float | None:
    return None if found is None else found.value


def _whole(recording: Recording, found: PmSamples, ran: Floats | None, reason: str | None = None) -> Sampled:
    """Return the means over the whole window; `ran` is the fraction of each sample in which the device was busy."""
    length, lost = found.times.lengths, reported(recording, PM_LOST)
    elapsed, while_busy = dict[str, float](), dict[str, float]()
    for name, column in found.columns.items():
        known = np.isfinite(column) if ran is None else np.isfinite(column) & np.isfinite(ran)
        if not known.any():
            continue
        elapsed[name] = float(np.average(column[known], weights=length[known]))
        time_busy = 0.0 if ran is None else float((ran * length)[known].sum())
        if time_busy and name not in (PM_BUSY, PM_CLOCK, PM_WARPS):
            while_busy[name] = float((column * length)[known].sum()) / time_busy
    return Sampled(
        samples=len(found.times),
        interval_ns=int(np.median(length)),
        lost=int(sum(lost)) if lost else None,
        residual_ns=max(reported(recording, PM_RESIDUAL), default=None),
        elapsed=elapsed,
        while_busy=while_busy,
        reason=reason,
    )


def _attributed(recording: Recording, found: PmSamples, kernels: Kernels) -> Sampled:
    launches = by_launch(kernels)
    group, longest = _grouped(launches)
    ran = Intervals(kernels.start_ns, kernels.end_ns)
    groups = min(len(launches.keys), MOST_GROUPS + 1)
    courses = [(name, found.columns[name]) for name in COURSES if name in found.columns]
    whole = [each for each in courses if np.isfinite(each[1]).all()]
    offset = calibrated(found.times, ran, group, groups, whole, PM_BUSY)
    times = found.times.shifted(offset.shift_ns)
    matrix, busy = shares(times, ran, group, groups), covered(times, ran)
    solved = {name: _solved(matrix, found.columns[name]) for name in ATTRIBUTED if name in found.columns}
    touched, sampled_s = np.diff(matrix.tocsc().indptr), (matrix.T @ times.lengths) / 1e9
    rows = [
        _row(launches, launch, place, int(touched[place]), float(sampled_s[place]) / kernels.steps, solved)
        for place, launch in enumerate(longest.tolist())
    ]
    return replace(
        _whole(recording, found, busy),
        busy=float(np.average(busy, weights=times.lengths)),
        offset=offset,
        residuals={name: solution.residual for name, solution in solved.items()},
        kernels=tuple(rows),
        by_name=_by_name(kernels, group, rows),
        violations=tuple(_violations(rows)),
    )


def _grouped(launches: Launches) -> tuple[Ints, Ints]:
    """Return each kernel's group (longest first), and the launches with their own group; the rest share the last."""
    order = np.argsort(-launches.seconds, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    group: Ints = np.minimum(place, MOST_GROUPS)[launches.of_kernel]
    return group, order[:MOST_GROUPS]


def _solved(matrix: Any, column: Floats) -> Solution:
    known = np.isfinite(column)
    return solve(matrix if known.all() else matrix[np.flatnonzero(known)], column[known])


def _row(
    launches: Launches, launch: int, place: int, samples: int, sampled_s: float, solved: Mapping[str, Solution]
) -> SampledKernels:
    use = Use() if samples < LEAST_SAMPLES else _use(solved, place)
    seconds = float(launches.seconds[launch])
    return SampledKernels(
        key=launches.keys[launch],
        calls=float(launches.calls[launch]),
        seconds=seconds,
        share=float(launches.share[launch]),
        use=use,
        samples=samples,
        covered=sampled_s / seconds if seconds else 0.0,
        reason=None if use != Use() else _reason(samples, place, solved),
    )


def _use(solved: Mapping[str, Solution], place: int) -> Use:
    def estimate(counter: str, part: float = 1.0) -> Estimate | None:
        solution = solved.get(counter)
        if solution is None or solution.error[place] > MOST_ERROR:
            return None
        found = (solution.use[place], solution.error[place], solution.residuals[place])
        return Estimate(*(part * float(each) for each in found))

    fp32, lite = estimate(PM_FP32), estimate(PM_FP32_LITE, LITE_PART)
    return Use(fp32, lite, estimate(PM_TENSOR), estimate(PM_DRAM), estimate(PM_SM_ACTIVE))


def _reason(samples: int, place: int, solved: Mapping[str, Solution]) -> str:
    """Return why no use of a kernel is reported."""
    least = min((float(solution.error[place]) for solution in solved.values()), default=np.inf)
    if samples < LEAST_SAMPLES:
        return f"too short or too rare: it has a part in {samples} samples"
    if not np.isfinite(least):
        return "always runs with the same other kernels: samples cannot separate them"
    return f"too short or too rare: its use is uncertain by {100 * least:.0f} points"


def _by_name(kernels: Kernels, group: Ints, rows: Sequence[SampledKernels]) -> dict[tuple[str, str], NamedUse]:
    """Return the uses by name and phase, each kernel weighted by its time."""
    codes, code = np.unique(kernels.name.astype(np.int64) * len(Phase) + kernels.phase, return_inverse=True)
    width = len(rows) + 1
    spent = np.bincount(code * width + np.minimum(group, len(rows)), kernels.own_ns, len(codes) * width)
    found = {}
    for name, times in zip(codes.tolist(), spent.reshape(len(codes), width), strict=True):
        parts = [(rows[place], float(times[place])) for place in np.flatnonzero(times[:-1])]
        known = [(row, time) for row, time in parts if row.reason is None]
        if known:
            key = kernels.strings[name // len(Phase)], Phase(name % len(Phase)).name.lower()
            covers = sum(time for _, time in known) / float(times.sum())
            found[key] = NamedUse(_mean(known), sum(row.samples for row, _ in known), covers)
    return found


def _mean(parts: Sequence[tuple[SampledKernels, float]]) -> Use:
    """Return the mean of several uses, weighted by time."""

    def mean(name: str) -> Estimate | None:
        known = [(each, time) for row, time in parts if (each := getattr(row.use, name)) is not None]
        total = sum(time for _, time in known)
        if not total:
            return None
        value = sum(each.value * time for each, time in known) / total
        error = math.sqrt(sum((each.error * time / total) ** 2 for each, time in known))
        return Estimate(value, error, math.sqrt(sum(each.residual**2 * time for each, time in known) / total))

    return Use(*(mean(each.name) for each in fields(Use)))


def _violations(rows: Sequence[SampledKernels]) -> Iterator[str]:
    """Yield a message for each impossible use: above 1 by more than its error explains."""
    for row in rows:
        for each in fields(Use):
            estimate = getattr(row.use, each.name)
            if estimate is not None and estimate.value - NOISE * estimate.error > 1:
                what = each.name.replace("_", " ")
                yield f"{what} of {row.key[0]} is sampled at {100 * estimate.value:.1f} %: more than there is"
