"""The names of a chip's metrics for each counter, and the choice of metrics that are sampled together.

The names are those of libnvperf_host (nvidia-cuda-cupti 13.5.25), queried for TU102, GA100, GA102, AD102, GH100, GB100,
GB110 and GB202. Only what takes one pass can be sampled, so a metric that needs another pass is left out. Names of a
set (`TriageCompute`, whose counters are made for sampling) may not work beside others. They are tried first, and if
they do not work the plain names are used.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tbdprof.facts.counters import (
    PM_BUSY,
    PM_CLOCK,
    PM_DRAM,
    PM_FP32,
    PM_FP32_LITE,
    PM_SM_ACTIVE,
    PM_TENSOR,
    PM_WARPS,
)

PERCENT = 0.01
_OF_PEAK = "avg.pct_of_peak_sustained_elapsed"


@dataclass(frozen=True, slots=True)
class Metric:
    """A counter of `facts.counters`, its possible metric names, and the factor to the counter's value."""

    counter: str
    names: tuple[str, ...]
    scale: float = PERCENT


@dataclass(frozen=True, slots=True)
class Family:
    """Metrics that can be sampled together, the most important first; the last are dropped if a pass is full."""

    metrics: tuple[Metric, ...]
    metric_set: str | None = None  # CUPTI's name of their set, if one has to be given


_CLOCK = Metric(PM_CLOCK, ("gpc__cycles_elapsed.avg.per_second",), 1.0)

_SAMPLED = (
    Metric(PM_BUSY, (f"FE_B.TriageCompute.gr__cycles_active.{_OF_PEAK}",)),
    Metric(
        PM_FP32,
        (
            f"TPC.TriageCompute.sm__inst_executed_pipe_fma_realtime.{_OF_PEAK}",
            f"TPC.TriageCompute.sm__pipe_fma_cycles_active_realtime.{_OF_PEAK}",  # GB100 and GB110 have this one
        ),
    ),
    Metric(PM_TENSOR, (f"TPC.TriageCompute.sm__pipe_tensor_cycles_active_realtime.{_OF_PEAK}",)),
    Metric(PM_SM_ACTIVE, (f"TPC.TriageCompute.sm__cycles_active.{_OF_PEAK}",)),
    Metric(PM_FP32_LITE, (f"TPC.TriageCompute.sm__inst_executed_pipe_fmalite_realtime.{_OF_PEAK}",)),
    Metric(
        PM_DRAM,
        (
            f"FBSP.TriageCompute.dramc__throughput.{_OF_PEAK}",
            f"FBSP.TriageCompute.dram__throughput.{_OF_PEAK}",
        ),
    ),
    _CLOCK,
    Metric(PM_WARPS, ("TPC.TriageCompute.tpc__warps_active_realtime.avg.per_cycle_active",), 1.0),
)
_PLAIN = (
    Metric(PM_BUSY, (f"gr__cycles_active.{_OF_PEAK}",)),
    Metric(PM_FP32, (f"sm__inst_executed_pipe_fma.{_OF_PEAK}",)),
    Metric(PM_TENSOR, (f"sm__pipe_tensor_cycles_active.{_OF_PEAK}",)),
    Metric(PM_SM_ACTIVE, (f"sm__cycles_active.{_OF_PEAK}",)),
    Metric(PM_FP32_LITE, (f"sm__inst_executed_pipe_fmalite.{_OF_PEAK}",)),
    Metric(PM_DRAM, (f"dram__throughput.{_OF_PEAK}", f"gpu__dram_throughput.{_OF_PEAK}")),
    _CLOCK,
    Metric(PM_WARPS, ("sm__warps_active.avg.per_cycle_active",), 1.0),
)
_SET = "TriageCompute"
_HAS_SET = ("GH100", "GB100", "GB102", "GB110", "GB112")
# CUPTI guide, PM sampling: GPU_TIME_INTERVAL is not supported on Turing and on GA100, where intervals are cycles.
_BY_CYCLES = ("TU", "GA100")

_CYCLES_PER_NS = 1.2  # approximate system clock of these chips; the samples report their true length


def families(chip: str) -> tuple[Family, ...]:
    """Return the ways to sample a chip, the best first."""
    plain = Family(_PLAIN)
    return (Family(_SAMPLED), Family(_SAMPLED, _SET), plain) if chip in _HAS_SET else (plain,)


def chosen(family: Family, passes: Callable[[Sequence[str]], int | None]) -> tuple[tuple[Metric, str], ...]:
    """Return the metrics of a family that take one pass together, each with its name.

    `passes` returns how many passes some names take together, or None if the chip lacks one of them.
    """
    kept: list[tuple[Metric, str]] = []
    for metric in family.metrics:
        names = [name for _, name in kept]
        found = next((name for name in metric.names if passes([*names, name]) == 1), None)
        if found is not None:
            kept.append((metric, found))
    return tuple(kept)


def intervals(chip: str, interval_ns: int) -> Mapping[bool, int]:
    """Return the intervals to try, in order: whether it is of time, and its length in nanoseconds or in cycles."""
    cycles = round(interval_ns * _CYCLES_PER_NS)
    if chip.startswith(_BY_CYCLES):
        return {False: cycles}
    return {True: interval_ns, False: cycles}
