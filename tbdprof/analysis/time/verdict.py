"""What limits the run: the largest share of a step, in one sentence with its number, and what to try first.

`analysis.time.shares` divides each step. A longer wait for batches in the clean steps counts instead of the share of
data, as a profiled step is slower and its batch is ready earlier. The largest share is named only if the steps agree
on it: the 95 % interval of its lead over each other share (Student's t over the steps, paired) is above 0. If other
processes took some of the cores, the share must also be the largest without so much of its own time, for nobody knows
whose time they lengthened. Otherwise the verdict names the shares that may be the largest.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tbdprof.analysis.kernels.kernels import Kernels
from tbdprof.analysis.time.shares import Parts, parts, short_ns
from tbdprof.analysis.time.timeline import Timeline
from tbdprof.facts.arrays import Floats
from tbdprof.facts.records import Peaks
from tbdprof.results.time import Verdict

BOUNDS = ("data", "launching", "copies", "communication", "compute", "memory", "uncounted", "other")
ALWAYS = ("data", "launching", "compute", "memory")  # shown even if they are 0
LEAD_OF_ONE = 0.1  # of the step: the lead that a single step must show, which has no interval
LEAST_RIVAL = 0.05  # of the step; nothing smaller is taken for what limits it, however the steps vary
LEAST_LEFT = 0.25  # of a share's time, if others took nearly all cores: what is four times as large is larger
MOSTLY = 0.5
# Two-sided 95 % of Student's t, by degrees of freedom from 1; that of the normal distribution is 1.960.
T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)

SENTENCES = {
    "data": "bound by data: {share} passes before the forward pass, {where}",
    "launching": "bound by launching: {share} {where}",
    "copies": "bound by copies: {share} goes to copies to or from the GPU while nothing else runs",
    "communication": "bound by communication: {share} waits for other processes or devices",
    "compute": "bound by compute: {share} is in {kernels} that arithmetic limits, mostly {phase}",
    "memory": "bound by memory: {share} is in {kernels} that reading and writing memory limits, mostly {phase}",
    "uncounted": "what limits the step is not known: {share} is in {kernels} whose arithmetic and memory traffic are"
    " not known, mostly {phase}",
    "other": "bound by other work: {share} is outside of loading, forward, backward and update",
}
PHRASES = {
    "forward": "in the forward pass",
    "backward": "in the backward pass",
    "recompute": "in what is computed again",
    "update": "in the update",
    "outside": "before the backward pass or after the update",
}
WAITING = "bound by data: {share} is spent waiting for the next batch"
ADVICE = {
    "data": (
        "load ahead of the training loop: more loader workers, prefetching, pinned memory",
        "make a batch cheaper: decode and augment ahead of time, or cache what does not change",
    ),
    "launching": (
        "give each operator more to do: a larger batch, fewer and larger layers, fused or foreach operators",
        "take Python out of the way: compile or hybridize the model, record the step once and replay it",
    ),
    "copies": ("copy from pinned memory while kernels run, and keep what is used again on the device",),
    "communication": ("overlap communication with backward: larger buckets, fewer and later reductions",),
    "compute": (
        "see which of the longest kernels are below the average utilization, and why",
        "compute less or cheaper: a lower precision where the device has units for it",
    ),
    "memory": (
        "fuse what is done element by element with its neighbours: compile the model, use fused operators",
        "move fewer bytes: a lower precision, in-place activations, another data layout",
    ),
    "uncounted": ("see which they are: tbdprof kernels FILE",),
    "other": ("do metrics, logging, saving and waiting less often, or beside the training",),
}
MEASURE_AGAIN = "measure again for longer, with nothing else running: --repeat 5"


@dataclass(frozen=True, slots=True)
class _Judged:
    """The parts of the steps that are judged, which of the shares may be the largest, and why several may be."""

    ns: Mapping[str, Floats]
    of_clean: bool  # the waiting of clean steps replaced the share of data
    names: tuple[str, ...]
    why: str = ""


def verdict(
    kernels: Kernels, course: Timeline, peaks: Peaks | None, starved: float | None = None, others: float = 0.0
) -> Verdict:
    """Return what takes the largest share of a step, or the shares between which the steps cannot tell.

    `starved` is the share of clean steps that waits for batches, `others` that of the cores that others took.
    """
    found = parts(kernels, course, peaks)
    judged = _judged(found, starved or 0.0, others)
    wall = found.step_ns
    intervals = {name: _interval(each, wall) for name, each in judged.ns.items()}
    shares = {name: float(each.sum() / wall.sum()) for name, each in judged.ns.items()}
    shares = {name: share for name, share in shares.items() if share or name in ALWAYS}
    first = judged.names[0]
    is_clear = len(judged.names) == 1
    return Verdict(
        bound_by=first if is_clear else None,
        share=shares[first],
        sentence=_sentence(kernels, found, judged, shares, intervals) if is_clear else _undecided(judged, shares),
        advice=_advice(found, judged),
        shares=shares,
        intervals={name: intervals[name] for name in shares},
        candidates=judged.names,
    )


def _judged(found: Parts, starved: float, others: float) -> _Judged:
    """Return which shares may be the largest, the largest first."""
    own = found.shares()["data"]
    of_clean = starved > own
    ns = _with_waiting(found, starved, own) if of_clean else found.ns
    order = sorted(ns, key=lambda name: (-ns[name].sum(), BOUNDS.index(name)))
    first = order[0]
    rest = [name for name in order[1:] if ns[name].sum() >= LEAST_RIVAL * found.step_ns.sum()]
    unsteady = [name for name in rest if not _leads(ns[first], ns[name], found.step_ns)]
    left = max(1 - others, LEAST_LEFT)
    close = [name for name in rest if left * ns[first].sum() <= ns[name].sum()]
    steps = len(found.step_ns)
    why = "the steps that were watched differ too much" if steps > 1 else "only one step was watched"
    if not unsteady:
        why = f"other processes took {100 * others:.0f} % of the cores"
    names = (first, *(name for name in rest if name in unsteady or name in close))
    return _Judged(ns, of_clean, names, why)


def _with_waiting(found: Parts, starved: float, own: float) -> dict[str, Floats]:
    """Return the parts of a clean step: waiting gets its share of each, and all others shrink in proportion."""
    left = (1 - starved) / (1 - own)
    ns = {name: left * each for name, each in found.ns.items()}
    ns["data"] = starved * found.step_ns
    return ns


def _leads(one: Floats, other: Floats, wall: Floats) -> bool:
    """Return whether one part of the steps is surely larger than another."""
    interval = _interval(one - other, wall)
    return (one - other).sum() >= LEAD_OF_ONE * wall.sum() if interval is None else interval[0] > 0


def _interval(part: Floats, wall: Floats) -> tuple[float, float] | None:
    """Return the 95 % interval of a part's share of the steps, or None for a single step.

    The share is a ratio of two sums; its error is that of a mean of the residuals (the delta method).
    """
    steps = len(part)
    if steps < 2:
        return None
    share = float(part.sum() / wall.sum())
    residuals = (part - share * wall) / wall.mean()
    half = _t(steps - 1) * float(np.std(residuals, ddof=1)) / math.sqrt(steps)
    return share - half, share + half


def _t(freedom: int) -> float:
    """Return the two-sided 95 % quantile of Student's t; beyond the table, a bound that is 1 % too high at most."""
    return T[freedom - 1] if freedom <= len(T) else 1.96 + 2.68 / freedom


def _sentence(
    kernels: Kernels,
    found: Parts,
    judged: _Judged,
    shares: Mapping[str, float],
    intervals: Mapping[str, tuple[float, float] | None],
) -> str:
    name, noun = judged.names[0], "operators" if kernels.device == "cpu" else "kernels"
    step = "a clean step" if judged.of_clean else "the step"
    share = f"{_percent(shares[name], intervals[name])} of {step}"
    if name == "data" and judged.of_clean:
        return WAITING.format(share=share)
    phase = found.phases.get(name, "")
    where = ""
    if name == "data":
        where = f"mostly while no {noun[:-1]} runs" if _waits(found) else f"mostly in {noun} that run there"
    elif name == "launching":
        where = _of_launching(kernels, found, noun)
    return SENTENCES[name].format(share=share, kernels=noun, where=where, phase=PHRASES.get(phase, ""))


def _waits(found: Parts) -> bool:
    return found.idle_data >= MOSTLY


def _of_launching(kernels: Kernels, found: Parts, noun: str) -> str:
    if found.gaps >= MOSTLY * found.shares()["launching"]:
        return f"passes between {noun} while none runs: in Python, and in asking for the next one"
    return f"goes to starting {noun}, most of it to {noun} shorter than {short_ns(kernels) // 1000} µs"


def _undecided(judged: _Judged, shares: Mapping[str, float]) -> str:
    named = [f"{'other work' if name == 'other' else name} ({100 * shares[name]:.0f} %)" for name in judged.names]
    step = "a clean step" if judged.of_clean else "the step"
    return f"cannot tell which takes most of {step}, {', '.join(named[:-1])} or {named[-1]}: {judged.why}"


def _percent(share: float, interval: tuple[float, float] | None) -> str:
    if interval is None:
        return f"{100 * share:.0f} %"
    low, high = (100 * min(max(end, 0.0), 1.0) for end in interval)
    return f"{100 * share:.0f} % [{low:.0f}, {high:.0f}]"


def _advice(found: Parts, judged: _Judged) -> tuple[str, ...]:
    if len(judged.names) > 1:
        return (MEASURE_AGAIN, *(ADVICE[name][0] for name in judged.names))
    (name,) = judged.names
    turned = (name == "data" and not judged.of_clean and not _waits(found)) or (
        name == "launching" and found.gaps >= MOSTLY * found.shares()["launching"]
    )
    return ADVICE[name][::-1] if turned else ADVICE[name]
