"""How busy the device is and how much of its peak it reaches: equations 1 and 2 of the TBD paper.

The FLOPs are analytic: the model's products (bias and per-element arithmetic left out, nothing that is recomputed),
counted from what the operators were given, over the time in which any kernel ran. A value above 1 is possible and told
as it is: an algorithm may do fewer operations than the definition (Winograd's), or the peak's probe was disturbed.

A GPU's peak holds at its highest clock. Where the clock was sampled in the kernels windows, the utilization of the peak
at that clock is told beside it: of what the device could have done at the speed it really ran.
"""

from dataclasses import replace

import numpy as np

from tbdprof.analysis.kernels.kernels import Kernels
from tbdprof.facts.records import Run
from tbdprof.results.kernels import ANALYTIC, AtClock, Flop, Utilization
from tbdprof.results.time import StepTime, Throughput

FP32 = "fp32"


def utilization(kernels: Kernels, spent: StepTime, throughput: Throughput | None, run: Run) -> Utilization:
    """Return the utilization of the device over the counted steps."""
    total = float(round(kernels.model_flops.sum()))  # whole, what kernels share of it is not
    flop = _flop(kernels, total, spent.busy, run)
    busy_seconds = spent.busy * spent.step_seconds
    samples = samples_counted(kernels, run)
    return Utilization(
        busy=None if throughput is None else busy_seconds / throughput.step_seconds,
        busy_in_window=spent.busy,
        flop=flop,
        fp32=flop if flop is not None and flop.precision == FP32 else None,
        flops_per_sample=total / samples if samples and total else None,
        flops_per_step=total / kernels.steps,
        flops_per_unit=flops_per_unit(total, kernels, run),
        precision=precision_of(kernels, run),
    )


def at_clock(found: Utilization, run: Run, clock_hz: float | None) -> Utilization:
    """Return the utilization with what it is at a clock, where the peak's own is known."""
    peak_clock_hz = None if run.peaks is None else run.peaks.clock_hz
    flop = found.flop
    if flop is None or flop.value is None or not clock_hz or not peak_clock_hz:
        return found
    told = replace(flop, at_clock=AtClock(flop.value * peak_clock_hz / clock_hz, clock_hz, peak_clock_hz))
    return replace(found, flop=told, fp32=None if found.fp32 is None else told)


def precision_of(kernels: Kernels, run: Run) -> str | None:
    """Return the precision of most of the products, without any the run's; None: nobody told."""
    told = kernels.precision >= 0
    if not (kernels.model_flops[told] > 0).any():
        return run.precision
    return kernels.strings[int(np.bincount(kernels.precision[told], kernels.model_flops[told]).argmax())]


def flops_per_unit(total: float, kernels: Kernels, run: Run) -> dict[str, float]:
    """Return the FLOPs of each unit of work that was counted; padding is no work, but its FLOPs are in them."""
    counted = {run.unit: kernels.units, **kernels.other_units}
    return {unit: total / units for unit, units in counted.items() if units and total}


def samples_counted(kernels: Kernels, run: Run) -> float | None:
    """Return how many samples the counted steps consumed, None: no samples were counted, and no batch size is known."""
    if run.unit in ("samples", run.sample_unit):
        return kernels.units
    if run.sample_unit in kernels.other_units:
        return kernels.other_units[run.sample_unit]
    return None if run.batch_size is None else float(run.batch_size * kernels.steps)


def _flop(kernels: Kernels, total: float, busy: float, run: Run) -> Flop | None:
    precision = precision_of(kernels, run)
    if run.peaks is None or precision is None or precision not in run.peaks.flops_per_s or not total:
        return None
    peak = run.peaks.flops_per_s[precision]
    active_seconds = busy * float(kernels.step_ns.sum()) / 1e9
    value = total / (peak * active_seconds) if active_seconds else None
    return Flop(
        value=value,
        level=ANALYTIC,
        precision=precision,
        coverage=kernels.share(kernels.has_products),
        peak_flops_per_s=peak,
        peak_source=run.peaks.sources.get(precision, ""),
        bound=1 / value if value else None,
    )
