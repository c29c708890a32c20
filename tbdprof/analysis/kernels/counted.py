"""Nsight Compute's exact counts of one step, assigned to the kernels of the kernels windows.

`analysis.kernels.matching` assigns the counted launches to kernels. Counts are exact, but kernels run at another speed
under the tool. So utilization is the counted FLOPs over peak × time in the kernels windows. FP32 FLOPs are 2 × fused
multiply-adds + additions + multiplications (`flop_count_sp` of NVIDIA's table of metrics). A pipe's fraction is
relative to the launch's time under the tool, where it ran alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tbdprof.analysis.kernels.kernels import Kernels
from tbdprof.analysis.kernels.launches import Launches, by_launch
from tbdprof.analysis.kernels.matching import matched
from tbdprof.facts import counters
from tbdprof.facts.arrays import Floats, Ints
from tbdprof.facts.keys import ReasonFor
from tbdprof.facts.recording import Recording, Window
from tbdprof.facts.records import Peaks, Strings
from tbdprof.facts.windows import COUNTED
from tbdprof.results.found import Found, because
from tbdprof.results.kernels import Counted, CountedKernels, Key
from tbdprof.results.reasons import GPU_ONLY, NOT_EXACT

MOST = 1.001  # the tool rounds percentages; a count above 1 is an error
AT_REST = 0.0005  # of its time; a pipe active for less is idle (the tool rounds to 0.0001)
_TENSOR_OPS = counters.counted_tensor_ops("")


@dataclass(frozen=True, slots=True)
class _Counts:
    """The counted launches in order: their keys, and their values by counter (nan if not reported)."""

    keys: tuple[Key, ...]
    of_launch: Ints
    values: Mapping[str, Floats]

    def of(self, counter: str) -> Floats:
        """Return a counter's value of each launch."""
        return self.values.get(counter, np.full(len(self.of_launch), np.nan))

    @property
    def fp32_flops(self) -> Floats:
        """Return each launch's floating-point operations in FP32."""
        ffma, fadd, fmul = map(self.of, (counters.COUNTED_FFMA, counters.COUNTED_FADD, counters.COUNTED_FMUL))
        return 2 * ffma + fadd + fmul

    @property
    def products_pipe(self) -> Floats:
        """Return the fraction of each launch's time in which the tensor pipe multiplied matrices."""
        pairs = np.nan_to_num(self.of(counters.COUNTED_PAIRS_PIPE))  # if not reported, there are none
        return self.of(counters.COUNTED_TENSOR_PIPE) - pairs

    @property
    def tensor_flops(self) -> dict[str, Floats]:
        """Return each launch's floating-point operations on tensor cores, by the type of the operands."""
        names = [name for name in self.values if name.startswith(_TENSOR_OPS)]
        return {name.removeprefix(_TENSOR_OPS): self.values[name] for name in names}


def counted(recording: Recording, kernels: Kernels | None, active_seconds: float) -> Found[Counted | None]:
    """Return the counts of a step in which kernels ran for `active_seconds`, or why nothing was counted.

    The last of several counted steps is used.
    """
    windows = [window for window in recording.named(COUNTED) if len(window.table("kernel"))]
    if not windows or kernels is None or not len(kernels):
        return because(_why_not_counted(recording))
    counts, peaks, groups = _counts(windows[-1], recording.strings), recording.run.peaks, by_launch(kernels)
    rows = matched(groups.keys, _in_first_step(groups, kernels), counts.keys, counts.of_launch)
    lost = [place for place in _longest_first(groups) if place not in rows and not groups.is_transfer[place]]
    listed = [_kernels(groups, place, counts, rows[place], peaks) for place in _longest_first(groups) if place in rows]
    fp32, tensor = _sum(counts.fp32_flops), _sums(counts.tensor_flops)
    uses = _fp32(fp32, active_seconds, peaks), _tensor(tensor, active_seconds, peaks)
    products = _weighted(counts.products_pipe, counts.of(counters.COUNTED_NS))
    found = Counted(
        launches=len(counts.of_launch),
        fp32_flops=fp32,
        tensor_flops=tensor,
        dram_bytes=_sum(counts.of(counters.COUNTED_DRAM_BYTES)),
        analytic_flops=_sum(groups.flops),
        fp32_utilization=uses[0],
        tensor_utilization=uses[1],
        flop_utilization=_both(*uses, tensor, products),
        kernels=tuple(listed),
        unmatched=tuple(groups.keys[place] for place in lost),
        unmatched_share=float(groups.share[lost].sum()),
        left_over=len(counts.of_launch) - len({row for each in rows.values() for row in each.tolist()}),
        violations=tuple(_violations("the step", *uses)) + tuple(text for each in listed for text in _of(each)),
    )
    return Found(found)


def _why_not_counted(recording: Recording) -> str:
    not_compared = "the run recorded no kernels to compare the counted step with"
    reason = not_compared if recording.named(COUNTED) else NOT_EXACT
    return recording.missing.get(ReasonFor.COUNTED, GPU_ONLY if recording.run.device == "cpu" else reason)


def _in_first_step(groups: Launches, kernels: Kernels) -> Ints:
    """Return the groups of the first counted step's kernels, in their order."""
    chosen: Ints = groups.of_kernel[kernels.step == kernels.step[kernels.step >= 0].min(initial=kernels.steps)]
    return chosen


def _longest_first(groups: Launches) -> list[int]:
    places: list[int] = np.argsort(-groups.seconds, kind="stable").tolist()
    return places


def _counts(window: Window, strings: Strings) -> _Counts:
    kernels, counts = window.table("kernel"), window.table("count")
    triples, of_launch = np.unique(
        np.stack([kernels[name] for name in ("name", "grid", "block")], axis=1), axis=0, return_inverse=True
    )
    values: dict[str, Floats] = {}
    for index in np.unique(counts["counter"]):
        chosen = counts[counts["counter"] == index]
        column = np.full(len(kernels), np.nan)
        column[chosen["kernel"]] = chosen["value"]
        values[strings[int(index)]] = column
    keys = tuple((strings[int(name)], strings[int(grid)], strings[int(block)]) for name, grid, block in triples)
    return _Counts(keys, of_launch.reshape(-1), values)


def _kernels(groups: Launches, place: int, counts: _Counts, rows: Ints, peaks: Peaks | None) -> CountedKernels:
    """Return a group's counts: the mean of its launches × its calls, with fractions weighted by time."""
    calls, seconds = float(groups.calls[place]), float(groups.seconds[place])
    fp32 = _mean(counts.fp32_flops[rows], calls)
    each = {kind: _mean(values[rows], calls) for kind, values in counts.tensor_flops.items()}
    tensor = {kind: value for kind, value in each.items() if value is not None}
    duration = counts.of(counters.COUNTED_NS)[rows]
    uses = _fp32(fp32, seconds, peaks), _tensor(tensor, seconds, peaks)
    return CountedKernels(
        key=groups.keys[place],
        calls=calls,
        seconds=seconds,
        share=float(groups.share[place]),
        launches=len(rows),
        fp32_flops=fp32,
        tensor_flops=tensor,
        dram_bytes=_mean(counts.of(counters.COUNTED_DRAM_BYTES)[rows], calls),
        fp32_pipe=_weighted(counts.of(counters.COUNTED_FP32_PIPE)[rows], duration),
        tensor_pipe=_weighted(counts.of(counters.COUNTED_TENSOR_PIPE)[rows], duration),
        fp32_utilization=uses[0],
        tensor_utilization=uses[1],
        flop_utilization=_both(*uses, tensor, _weighted(counts.products_pipe[rows], duration)),
    )


def _fp32(flops: float | None, seconds: float, peaks: Peaks | None) -> float | None:
    return None if flops is None else _tensor({"fp32": flops}, seconds, peaks)


def _tensor(flops: Mapping[str, float], seconds: float, peaks: Peaks | None) -> float | None:
    """Return the time that the FLOPs take at peak, over `seconds`, or None if a peak is not known."""
    rates = {} if peaks is None else peaks.flops_per_s
    if not flops or not seconds or any(kind not in rates for kind, count in flops.items() if count):
        return None
    return sum(count / rates[kind] for kind, count in flops.items() if count) / seconds


def _both(fp32: float | None, tensor: float | None, flops: Mapping[str, float], used: float | None) -> float | None:
    """Return the FLOP utilization of all types, or None if tensor cores ran but their FLOPs are 0 or unknown."""
    idle = used is not None and used < AT_REST
    if fp32 is None or not (idle or any(flops.values())):
        return None
    return fp32 if idle and tensor is None else None if tensor is None else fp32 + tensor


def _of(each: CountedKernels) -> list[str]:
    name = f"{each.key[0]} {each.key[1]}"
    return _violations(name, each.fp32_utilization, each.tensor_utilization, each.fp32_pipe, each.tensor_pipe)


def _violations(what: str, *fractions: float | None) -> list[str]:
    """Return a message for each counted fraction above 1."""
    return [f"counted above 1 of {what}: {each:.3f}" for each in fractions if each is not None and each > MOST]


def _mean(values: Floats, times: float) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.mean() * times) if len(known) else None


def _sum(values: Floats) -> float | None:
    return _mean(values, float(np.isfinite(values).sum()))


def _sums(values: Mapping[str, Floats]) -> dict[str, float]:
    found = {kind: _sum(each) for kind, each in values.items()}
    return {kind: each for kind, each in found.items() if each is not None}


def _weighted(values: Floats, weights: Floats) -> float | None:
    known = np.isfinite(values) & np.isfinite(weights) & (weights > 0)
    return float(np.average(values[known], weights=weights[known])) if known.any() else None
