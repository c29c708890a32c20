"""What limits the run: the largest share of a step, in one sentence with its number, and what to try first.

Every instant of a step has one share:

- communication, copies (to or from a GPU): they run while nothing else does;
- data: the framework's data loader, and the time before forward in which no kernel runs. A longer wait for batches in
  the clean steps counts instead, as a profiled step is slower and its batch is ready earlier;
- launching: no kernel runs although forward, backward or update has begun; and kernels so short that their time is the
  cost of launching them;
- compute, memory: kernels above and below the ridge of the roofline. If bytes or peaks are not known, the operation
  decides: arithmetic limits matmuls and convolutions, memory limits element-wise operations;
- uncounted: kernels for which none of this is known;
- other: kernels before forward and after the last training kernel, and the time after that.
"""

from collections.abc import Mapping

import numpy as np

from tbdprof.analysis.kernels.kernels import PRODUCTS, Kernels
from tbdprof.analysis.kernels.roofline import ridge
from tbdprof.analysis.kernels.sums import by_precision
from tbdprof.analysis.time.timeline import DATA, PHASES, Timeline
from tbdprof.facts.arrays import Bools
from tbdprof.facts.records import Operation, Peaks, Phase
from tbdprof.results.time import Verdict

# The launch limits a kernel that is shorter than this. A launch on a GPU takes about 5 µs. An operator on the CPU that
# does nothing takes 2 to 13 µs under torch's profiler (tried), so half of an operator of this length is overhead.
SHORT_NS = {"gpu": 10_000, "cpu": 20_000}

BY_ELEMENT = (
    *(Operation.CAST, Operation.ACCUMULATE, Operation.EMBEDDING, Operation.NORMALIZATION, Operation.ACTIVATION),
    *(Operation.POOLING, Operation.SOFTMAX, Operation.LOSS, Operation.ELEMENTWISE, Operation.REDUCTION),
    *(Operation.OPTIMIZER, Operation.COPY),
)
BOUNDS = ("data", "launching", "copies", "communication", "compute", "memory", "uncounted", "other")
ALWAYS = ("data", "launching", "compute", "memory")  # shown even if they are 0
TRAINING = tuple(PHASES.index(name) for name in ("forward", "backward", "recompute", "update"))

SENTENCES = {
    "data": "{share} of the step goes to the next batch, before forward",
    "launching": "{share} of the step goes to asking for kernels: gaps between them, and kernels shorter than {short}",
    "copies": "{share} of the step copies while nothing else runs",
    "communication": "{share} of the step waits for other processes or devices",
    "compute": "{share} of the step is in kernels that arithmetic limits, such as matrix products and convolutions",
    "memory": "{share} of the step is in kernels that reading and writing memory limits",
    "uncounted": "{share} of the step is in kernels whose limit is not known",
    "other": "{share} of the step is outside of loading, forward, backward and update",
}
WAITING = "{share} of a clean step waits for the next batch"
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
    "other": ("do metrics, logging, saving and other models less often, or beside the training",),
}


def verdict(kernels: Kernels, course: Timeline, peaks: Peaks | None, starved: float | None = None) -> Verdict:
    """Return what takes the largest share of a step; `starved` is the share of clean steps that waits for batches."""
    shares = _shares(kernels, course, peaks)
    waits = starved or 0.0
    of_clean = waits > shares["data"]
    if of_clean:
        shares = _with_waiting(shares, waits)
    bound = max((name for name in BOUNDS if name in shares), key=lambda name: shares[name])
    share, short = f"{100 * shares[bound]:.0f} %", f"{short_ns(kernels) // 1000} µs"
    words = WAITING if bound == "data" and of_clean else SENTENCES[bound]
    sentence = f"bound by {bound}: {words.format(share=share, short=short)}"
    return Verdict(bound, shares[bound], sentence, ADVICE[bound], shares)


def _with_waiting(shares: Mapping[str, float], starved: float) -> dict[str, float]:
    """Return the shares of a clean step: waiting gets its share, and all others shrink in proportion."""
    left = (1 - starved) / (1 - shares["data"])
    return {name: starved if name == "data" else share * left for name, share in shares.items()}


def short_ns(kernels: Kernels) -> int:
    """Return the length below which a kernel counts as launching."""
    return SHORT_NS["cpu" if kernels.device == "cpu" else "gpu"]


def _shares(kernels: Kernels, course: Timeline, peaks: Peaks | None) -> dict[str, float]:
    """Return the shares of the steps; concurrent kernels share their time in proportion to their own times."""
    wall = int(course.length_ns.sum())
    apart = {"communication": course.only_communication}
    if kernels.device != "cpu":
        apart["copies"] = course.only_copies
    left = ~np.any([*apart.values()], axis=0)
    data = course.loading | ((course.phase == DATA) & ~course.busy)
    trained = np.isin(course.phase, TRAINING) & ~data
    shares = {
        "data": course.total_ns(left & data) / wall,
        "launching": course.total_ns(left & trained & ~course.busy) / wall,
        **{name: course.total_ns(pieces) / wall for name, pieces in apart.items()},
        "other": course.total_ns(left & ~data & ~trained) / wall,
    }
    for name, share in _kinds(kernels, peaks).items():
        shares[name] = shares.get(name, 0.0) + share * course.total_ns(left & course.busy & trained) / wall
    return {name: share for name, share in shares.items() if share or name in ALWAYS}


def _kinds(kernels: Kernels, peaks: Peaks | None) -> dict[str, float]:
    """Return training kernels' shares of own time by what limits each, without communication and copies."""
    left_out = (kernels.operation == Operation.COMMUNICATION) | kernels.crosses
    chosen = ~np.isin(kernels.phase, (Phase.OUTSIDE, Phase.DATA)) & ~left_out
    own = np.where(chosen, kernels.own_ns, 0)
    short = own < short_ns(kernels)
    compute = is_limited_by_compute(kernels, peaks)
    known = np.isin(kernels.operation, (*PRODUCTS, *BY_ELEMENT)) | np.isfinite(kernels.flops)
    total = max(int(own.sum()), 1)
    return {
        "launching": float(own[short].sum() / total),
        "compute": float(own[~short & known & compute].sum() / total),
        "memory": float(own[~short & known & ~compute].sum() / total),
        "uncounted": float(own[~short & ~known].sum() / total),
    }


def is_limited_by_compute(kernels: Kernels, peaks: Peaks | None) -> Bools:
    """Return which kernels are above the ridge; if that is unknown, which compute matmuls or convolutions."""
    ridges = by_precision(kernels, lambda precision, product: ridge(peaks, precision, product=product))
    least_flops = ridges * kernels.moved_bytes
    above: Bools = kernels.flops >= least_flops
    unknown = np.isnan(kernels.flops) | np.isnan(least_flops)
    return np.where(unknown, np.isin(kernels.operation, PRODUCTS), above)
