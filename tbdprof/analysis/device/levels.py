"""The use of the floating-point units at each level of measurement, side by side; exact counts check the others.

There are two different quantities: FLOPs over peak (analytic from the operators' definitions, counted from
instructions), and the fraction of time in which a pipe was active (sampled, counted, and the device's own). Only
figures of the same quantity are compared. A difference of 0.02 is two percentage points. The sampled FP32 pipe is the
FMA pipe, an upper bound like the counted one.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tbdprof.analysis.kernels.counted import counted
from tbdprof.analysis.kernels.executions import gather
from tbdprof.analysis.kernels.kernels import Kernels
from tbdprof.analysis.kernels.launches import Launches, by_launch
from tbdprof.facts.counters import PM_FP32, PM_FP32_LITE, PM_TENSOR
from tbdprof.facts.keys import ReasonFor
from tbdprof.facts.recording import Recording
from tbdprof.facts.records import Peaks
from tbdprof.facts.windows import COUNTED, SAMPLED
from tbdprof.results.device import Device
from tbdprof.results.found import Found, because, reasons
from tbdprof.results.kernels import Counted, CountedKernels, Key
from tbdprof.results.levels import Agreement, KernelLevels, Levels, Pipes, PipeUse
from tbdprof.results.reasons import (
    GPU_ONLY,
    NO_SHARE,
    NOT_BY_COUNTER,
    NOT_BY_DRIVER,
    NOT_BY_SAMPLER,
    NOT_SAMPLED_ALIKE,
    ONE_LEVEL,
)
from tbdprof.results.sampled import Sampled
from tbdprof.results.summary import Timing

LONGEST = 20
PIPE_BOUND = 0.02
FLOP_BOUND = 0.05


def judged(
    recording: Recording, timing: Timing | None, sampled: Mapping[Key, Pipes], device: Pipes
) -> tuple[Found[Counted | None], Found[Levels | None]]:
    """Return the exact counts of a run's step, and all levels of its longest kernels side by side."""
    if timing is None or not (sampled or recording.named(COUNTED)):
        exact = counted(recording, None, 0.0)
        return exact, explained(recording, None, exact)
    kernels, spent, use = gather(recording), timing.step_time, timing.utilization.flop
    exact = counted(recording, kernels, spent.busy * spent.step_seconds)
    analytic = None if use is None else use.value
    return exact, explained(
        recording, levels(kernels, recording.run.peaks, exact.value, sampled, device, analytic), exact
    )


def explained(recording: Recording, found: Levels | None, exact: Found[Counted | None]) -> Found[Levels | None]:
    """Return the levels with the reason for each mean that is None, or why no levels can be compared."""
    if found is None:
        return because(GPU_ONLY if recording.run.device == "cpu" else ONE_LEVEL)
    uncounted = exact.reason or NOT_BY_COUNTER
    pipes = {
        "sampled": (found.sampled, recording.missing.get(ReasonFor.SAMPLED, NOT_SAMPLED_ALIKE)),
        "counted": (found.counted, uncounted),
        "device": (found.device, recording.missing.get(ReasonFor.GPM, NOT_BY_DRIVER)),
    }
    parts: dict[str, tuple[object, str]] = {
        "flop.analytic": (found.analytic_flop, NO_SHARE),
        "flop.counted": (found.counted_flop, uncounted),
        "fp32_pipe.sampled_low": (found.sampled.fp32_low, pipes["sampled"][1]),
        **{f"fp32_pipe.{level}": (pipe.fp32, reason) for level, (pipe, reason) in pipes.items()},
        **{f"tensor_pipe.{level}": (pipe.tensor, reason) for level, (pipe, reason) in pipes.items()},
    }
    return Found(found, reasons({f"whole.{path}": part for path, part in parts.items()}))


def levels(
    kernels: Kernels | None,
    peaks: Peaks | None,
    exact: Counted | None,
    sampled: Mapping[Key, Pipes],
    device: Pipes,
    analytic_flop: float | None = None,
) -> Levels | None:
    """Return each level's figures for the longest kernels, or None if there are neither counts nor samples."""
    if kernels is None or not len(kernels) or (exact is None and not sampled):
        return None
    groups = by_launch(kernels)
    by_key = {} if exact is None else {each.key: each for each in exact.kernels}
    places = sorted(np.flatnonzero(~groups.is_transfer).tolist(), key=lambda place: -groups.seconds[place])
    every = [_row(groups, place, peaks, by_key.get(groups.keys[place]), sampled) for place in places]
    rows = every[:LONGEST]
    return Levels(
        rows=tuple(rows),
        agreements=tuple(_agreements(rows)),
        analytic_flop=analytic_flop,
        counted_flop=None if exact is None else exact.flop_utilization,
        sampled=_means(every, lambda row: row.sampled),
        counted=_means(every, lambda row: row.counted),
        device=device,
    )


def of_device(device: Device | None) -> Pipes:
    """Return the driver's figures for the kernels windows, converted from elapsed time to busy time."""
    gpm = None if device is None else device.gpm.get("kernels")
    if gpm is None or not gpm.busy:
        return Pipes()
    return Pipes(gpm.fp32_while_busy, None if gpm.tensor is None else gpm.tensor / gpm.busy)


def pipe_use(
    recording: Recording, sampled: Found[Sampled | None], device: Pipes
) -> Found[tuple[PipeUse | None, PipeUse | None]]:
    """Return the use of the FP32 and of the tensor pipe: the sampled one, otherwise the driver's."""
    use = {} if sampled.value is None else sampled.value.while_busy

    def of(counter: str, own: float | None) -> PipeUse | None:
        if counter in use:
            return PipeUse(use[counter], SAMPLED)
        return None if own is None else PipeUse(own, "device")

    found = of(PM_FP32, device.fp32), of(PM_TENSOR, device.tensor)
    reason = sampled.reason or NOT_BY_SAMPLER
    missing = reasons({"fp32_pipe": (found[0], reason), "tensor_pipe": (found[1], reason)})
    if recording.run.device != "cpu" and PM_FP32_LITE not in use:
        missing["fp32_pipe.low"] = reason
    return Found(found, missing)


def _row(
    groups: Launches, place: int, peaks: Peaks | None, exact: CountedKernels | None, sampled: Mapping[Key, Pipes]
) -> KernelLevels:
    return KernelLevels(
        key=groups.keys[place],
        seconds=float(groups.seconds[place]),
        share=float(groups.share[place]),
        is_product=bool(groups.is_product[place]),
        analytic_flop=_analytic(groups, place, peaks),
        counted_flop=None if exact is None else exact.flop_utilization,
        sampled=sampled.get(groups.keys[place], Pipes()),
        counted=Pipes() if exact is None else Pipes(exact.fp32_pipe, exact.tensor_pipe),
    )


def _analytic(groups: Launches, place: int, peaks: Peaks | None) -> float | None:
    precision, of_product = groups.precision[place], bool(groups.of_product[place])
    peak = None if peaks is None else peaks.of(precision, product=of_product)
    seconds, flops = float(groups.counted_seconds[place]), float(groups.flops[place])
    return flops / (peak * seconds) if peak and seconds and flops == flops else None


def _agreements(rows: Sequence[KernelLevels]) -> list[Agreement]:
    asked = (
        ("FP32 pipe, sampled against counted", PIPE_BOUND, [row.fp32_difference for row in rows]),
        ("tensor pipe, sampled against counted", PIPE_BOUND, [row.tensor_difference for row in rows]),
        ("FLOPs of products, analytic against counted", FLOP_BOUND, [row.flop_difference for row in rows]),
    )
    return [found for each in asked if (found := _agreement(*each)) is not None]


def _agreement(what: str, bound: float, differences: Sequence[float | None]) -> Agreement | None:
    known = [each for each in differences if each is not None]
    if not known:
        return None
    within = sum(abs(each) <= bound for each in known)
    return Agreement(what, within, len(known), bound, max(known, key=abs))


def _means(rows: Sequence[KernelLevels], of: Callable[[KernelLevels], Pipes]) -> Pipes:
    def mean(part: str) -> float | None:
        known = [(row.seconds, value) for row in rows if (value := getattr(of(row), part)) is not None]
        total = sum(seconds for seconds, _ in known)
        return sum(seconds * value for seconds, value in known) / total if total else None

    return Pipes(mean("fp32"), mean("tensor"), mean("fp32_low"))
