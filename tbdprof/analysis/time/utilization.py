"""How busy the device is and how much of its peak it reaches.

The definitions are equations 1 and 2 of the TBD paper (Zhu et al., IISWC 2018, arXiv:1803.06905). The FLOPs are
analytic: the model's matmuls and convolutions, counted from the operators' inputs, without bias, element-wise
arithmetic, recomputation and the update, whose matmuls (Muon's) have a figure of their own. The time is that in which
any kernel ran. A value above 1 is possible and is reported as it is: an algorithm may do fewer operations than the
definition (Winograd's does), or the probe of the peak was disturbed.

A GPU's peak holds at its highest clock. If the clock was sampled in the kernels windows, the report also gives the
utilization of the peak at that clock, the speed at which the device really ran.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tbdprof.analysis.kernels.kernels import Kernels
from tbdprof.analysis.time.given import Given, why_no_samples
from tbdprof.analysis.without import why_without
from tbdprof.facts.keys import ReasonFor, RemarkOn
from tbdprof.facts.recording import Recording
from tbdprof.facts.records import Run
from tbdprof.facts.windows import CLEAN
from tbdprof.results.found import Found
from tbdprof.results.kernels import ANALYTIC, AtClock, Flop, Utilization
from tbdprof.results.reasons import (
    DISTURBED_PEAK,
    LITTLE_COUNTED,
    LOW_UTILIZATION,
    NO_PRODUCTS,
    NOT_ASKED_FOR,
    NOT_IN_TABLE,
)
from tbdprof.results.time import StepTime, Throughput

FP32 = "fp32"
LEAST_COVERAGE = 0.5  # of the busy time; if products with a count take less, their FLOPs say little about it
LARGEST_BOUND = 100.0  # beyond it something else than arithmetic limits the products


def utilization(
    kernels: Kernels, spent: StepTime, throughput: Throughput | None, recording: Recording, steps: Found[Given]
) -> Found[Utilization]:
    """Return the utilization of the device over the counted steps; `steps` is what each was given."""
    run = recording.run
    total = float(round(kernels.model_flops.sum()))  # an integer; the kernels' shares of it are fractions
    flop = _flop(kernels, total, spent.busy, run)
    busy_seconds = spent.busy * spent.step_seconds
    units = units_counted(kernels, recording.run, steps.value)
    samples = _samples_of(units, run)
    found = Utilization(
        busy=None if throughput is None else busy_seconds / throughput.step_seconds,
        busy_in_window=spent.busy,
        flop=flop,
        fp32=flop if flop is not None and flop.precision == FP32 else None,
        flops_per_sample=total / samples if samples and total else None,
        flops_per_step=total / kernels.steps,
        update_flops_per_step=float(round(kernels.update_flops.sum())) / kernels.steps,
        flops_per_unit={unit: total / count for unit, count in units.items() if count and total},
        precision=precision_of(kernels, run),
    )
    return Found(found, _missing(recording, found, steps))


def _missing(recording: Recording, found: Utilization, steps: Found[Given]) -> dict[str, str]:
    """Return the reason for each figure that is None."""
    missing: dict[str, str] = {}
    if found.busy is None:
        missing["device_busy"] = why_without(recording, CLEAN)
    if found.flops_per_sample is None:
        missing["flops_per_sample"] = (
            why_no_samples(recording, steps) if found.flops_per_step else _no_products(recording)
        )
    if found.flop is None or found.flop.value is None:
        missing["mfu"] = missing["fp32_flop"] = why_no_flop(recording, found)
    elif found.flop.bound is None:
        missing["mfu.bound"] = missing["fp32_flop.bound"] = _why_no_bound(found.flop)
    if found.flop is not None and found.flop.value is not None and found.fp32 is None:
        missing.pop("fp32_flop.bound", None)
        missing["fp32_flop"] = _computes_in(found.flop.precision, recording.run.precision)
    return missing


def why_no_flop(recording: Recording, found: Utilization) -> str:
    """Return why FLOPs cannot be compared with the device's peak."""
    run = recording.run
    if run.peaks is None:
        return recording.missing.get(ReasonFor.PEAKS, "the device's peak was not looked for")
    precision = found.precision
    if precision is None or not found.flops_per_step:
        return _no_products(recording)
    is_looked_up = run.peaks.clock_hz is not None  # then the run has every known peak, requested or not
    why = run.peaks.sources.get(precision, NOT_IN_TABLE if is_looked_up else NOT_ASKED_FOR)
    return f"{_computes_in(precision, run.precision)}, and the peak of that is not known: {why}"


def _no_products(recording: Recording) -> str:
    """Return why there are no FLOPs: what the hook says of products without a count, if there are some."""
    return recording.missing.get(RemarkOn.KERNEL_COUNTS, NO_PRODUCTS)


def _computes_in(precision: str, requested: str | None) -> str:
    """Return the precision that a run computes in, and the requested one if it differs."""
    if requested is None or requested == precision:
        return f"the run computes in {precision}"
    return f"{requested} was requested, but most matmuls and convolutions compute in {precision}"


def at_clock(found: Utilization, run: Run, clock_hz: float | None) -> Utilization:
    """Return the utilization with its value at a clock added, if the clock of the peak is known."""
    peak_clock_hz = None if run.peaks is None else run.peaks.clock_hz
    flop = found.flop
    if flop is None or flop.value is None or not clock_hz or not peak_clock_hz:
        return found
    with_clock = replace(flop, at_clock=AtClock(flop.value * peak_clock_hz / clock_hz, clock_hz, peak_clock_hz))
    return replace(found, flop=with_clock, fp32=None if found.fp32 is None else with_clock)


def precision_of(kernels: Kernels, run: Run) -> str | None:
    """Return the precision of most FLOPs of matmuls and convolutions, otherwise the run's, or None if unknown."""
    known = kernels.precision >= 0
    if not (kernels.model_flops[known] > 0).any():
        return run.precision
    return kernels.strings[int(np.bincount(kernels.precision[known], kernels.model_flops[known]).argmax())]


def units_counted(kernels: Kernels, run: Run, steps: Given) -> dict[str, float]:
    """Return how much of each unit of work the counted steps consumed: as counted, else as each step has.

    Padding is not counted as work, but its FLOPs are included.
    """
    counted = {run.unit: kernels.units, **kernels.other_units}
    of_all = {unit: count * kernels.steps for unit, count in steps.per_step.items()}
    return of_all | {unit: count for unit, count in counted.items() if unit not in steps.misread}


def _samples_of(units: Mapping[str, float], run: Run) -> float | None:
    return units.get("samples", units.get(run.sample_unit))


def _flop(kernels: Kernels, total: float, busy: float, run: Run) -> Flop | None:
    precision = precision_of(kernels, run)
    if run.peaks is None or precision is None or precision not in run.peaks.flops_per_s or not total:
        return None
    peak = run.peaks.flops_per_s[precision]
    active_seconds = busy * float(kernels.step_ns.sum()) / 1e9
    value = total / (peak * active_seconds) if active_seconds else None
    coverage = kernels.share(kernels.has_products)
    has_bound = coverage >= LEAST_COVERAGE and not run.peaks.is_disturbed
    return Flop(
        value=value,
        level=ANALYTIC,
        precision=precision,
        coverage=coverage,
        peak_flops_per_s=peak,
        peak_source=run.peaks.sources.get(precision, ""),
        bound=1 / value if value and has_bound and 1 / value <= LARGEST_BOUND else None,
        at_most=run.peaks.is_disturbed,
    )


def _why_no_bound(flop: Flop) -> str:
    if flop.at_most:
        return DISTURBED_PEAK
    if flop.coverage < LEAST_COVERAGE:
        return LITTLE_COUNTED
    return LOW_UTILIZATION
