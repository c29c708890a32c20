"""The wall time of the counted steps, cut wherever anything begins or ends; each piece belongs to one phase.

A piece belongs to the phase of the kernel that runs, or of the last kernel if none runs. If kernels of two phases run
at once, a training phase goes before loading and outside; otherwise the kernel that began last decides. If threads of a
CPU are in several training phases at once, these phases share the piece by their numbers of threads. So the phases of
several training threads add up to the step, too. Two more rules:

- "data" is loading and whatever else precedes forward: the time before a step's first forward kernel. It is also the
  time from the end of an update, of a backward pass or of something outside to the next forward kernel. Time in the
  framework's data loader while nothing else runs is "data", too.
- On a CPU, communication outside of all phases belongs to what the training threads did last, and nothing is busy
  while only communication runs.
- "other" is what ran outside without a forward pass after it, and the time after a step's last kernel.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tbdprof.analysis.kernels.kernels import Kernels
from tbdprof.facts.arrays import Bools, Ints, Rows, narrowed
from tbdprof.facts.records import Operation, Phase

PHASES = ("data", "forward", "backward", "recompute", "update", "other")
DATA, OTHER = PHASES.index("data"), PHASES.index("other")

_TRAINING = (Phase.FORWARD, Phase.BACKWARD, Phase.RECOMPUTE, Phase.UPDATE)
_NOTHING = 255  # no kernel runs, or none ran yet in this step
_PLACE_OF = {phase: PHASES.index(phase.name.lower()) for phase in _TRAINING}


@dataclass(frozen=True, slots=True)
class Timeline:
    """One entry per piece of the steps' wall time; the pieces add up to it."""

    length_ns: Ints  # of a narrower type if all fit
    step: Rows  # index among the counted steps
    phase: NDArray[np.uint8]  # index in PHASES
    busy: Bools  # at least one kernel runs
    waiting: Bools  # the host is in a call that waits for the device
    loading: Bools  # in the framework's data loader or one of its operators, and no training kernel runs
    only_copies: Bools  # copies that enter or leave the device run, and nothing else
    communicating: Bools
    only_communication: Bools

    def total_ns(self, chosen: Bools) -> int:
        """Return the total length of the chosen pieces."""
        return int(self.length_ns[chosen].sum())


def timeline(kernels: Kernels) -> Timeline:
    """Cut the counted steps into pieces."""
    edges = _edges(kernels)
    at = edges[:-1]
    step = _step_of(at, kernels.step_start_ns, kernels.step_start_ns + kernels.step_ns)
    label = np.where(step >= 0, _labels(kernels, edges), np.uint8(_NOTHING))
    asking = _running(edges, kernels.data_start_ns, kernels.data_end_ns)
    phase = _phases(label, step, asking)
    running = label != _NOTHING
    piece, phase, length = _divided(kernels, edges, phase)
    within = (step >= 0)[piece]
    inside: Bools | slice = slice(None) if within.all() else within
    communicates = kernels.operation == Operation.COMMUNICATION
    copies, communication = (_only(kernels, edges, each) for each in (kernels.crosses, communicates))
    busy = running & ~communication if kernels.device == "cpu" else running
    return Timeline(
        length_ns=length[inside],
        step=step[piece][inside],
        phase=phase[inside],
        busy=busy[piece][inside],
        waiting=_running(edges, kernels.wait_start_ns, kernels.wait_end_ns)[piece][inside],
        loading=((label == Phase.DATA) | (asking & ~running))[piece][inside],
        only_copies=copies[piece][inside],
        communicating=_running(edges, kernels.start_ns[communicates], kernels.end_ns[communicates])[piece][inside],
        only_communication=communication[piece][inside],
    )


def _step_of(at: Ints, begins: Ints, ends: Ints) -> Rows:
    """Return the index of the step that contains each of some ordered times, or -1 if there is none."""
    step: Rows = np.full(len(at), -1, np.int32 if len(begins) > np.iinfo(np.int16).max else np.int16)
    for index, (first, last) in enumerate(zip(*(np.searchsorted(at, each) for each in (begins, ends)), strict=True)):
        step[first:last] = index
    return step


def _divided(kernels: Kernels, edges: Ints, phase: NDArray[np.uint8]) -> tuple[Ints | slice, NDArray[np.uint8], Ints]:
    """Return the pieces, their phases and lengths; a piece that several phases share appears once per phase."""
    length = narrowed(np.diff(edges))
    trains = np.isin(kernels.phase, _TRAINING)
    threads = np.unique(kernels.thread_or_stream[trains]) if kernels.device == "cpu" else ()
    if len(threads) < 2:
        return slice(None), phase, length
    count = np.zeros((len(length), len(_TRAINING)), np.int64)
    for thread in threads:
        label = _labels(kernels, edges, trains & (kernels.thread_or_stream == thread))
        for place, each in enumerate(_TRAINING):
            count[:, place] += label == each
    several = (count > 0).sum(axis=1) > 1
    count[~several] = 0
    count[~several, 0] = 1  # the piece stays whole
    upto = length[:, None] * np.cumsum(count, axis=1) // count.sum(axis=1, keepdims=True)
    part = np.diff(upto, axis=1, prepend=0)
    piece, column = np.nonzero(count)
    places = np.array([_PLACE_OF[each] for each in _TRAINING], np.uint8)
    return piece, np.where(several[piece], places[column], phase[piece]), part[piece, column]


def _edges(kernels: Kernels) -> Ints:
    begins = kernels.step_start_ns
    times = (kernels.start_ns, kernels.end_ns, kernels.data_start_ns, kernels.data_end_ns)
    waits = (kernels.wait_start_ns, kernels.wait_end_ns)
    edges = np.concatenate([*times, *waits, begins, begins + kernels.step_ns])
    edges.sort()
    kept: Ints = edges[np.append(True, edges[1:] > edges[:-1])]
    first, last = np.searchsorted(kept, [begins[0], begins[-1] + kernels.step_ns[-1]])
    return kept[first : last + 1]


def _running(edges: Ints, start_ns: Ints, end_ns: Ints) -> Bools:
    """Return in which pieces at least one of the intervals runs."""
    size = len(edges)
    change = np.zeros(size + 1, np.int32)
    np.add.at(change, np.searchsorted(edges, start_ns), 1)
    np.subtract.at(change, np.searchsorted(edges, np.maximum(end_ns, start_ns)), 1)
    running: Bools = np.cumsum(change, out=change)[: size - 1] > 0
    return running


def _labels(kernels: Kernels, edges: Ints, of: Bools | None = None) -> NDArray[np.uint8]:
    """Return the phase of the kernels (all, or those in `of`) that run in each piece, or _NOTHING if none runs."""
    label = np.full(len(edges) - 1, _NOTHING, np.uint8)
    inside = kernels.start_ns < edges[-1]  # with an inexact clock, a GPU's kernel can begin after the last step
    inside = inside if of is None else inside & of
    if kernels.device == "cpu":
        inside &= (kernels.operation != Operation.COMMUNICATION) | (kernels.phase != Phase.OUTSIDE)
    for phases in ((Phase.OUTSIDE, Phase.DATA), _TRAINING):  # the second group overrides the first
        began_last = np.full(len(label), -1, np.int32)
        for phase in phases:
            chosen = (kernels.phase == phase) & (kernels.end_ns > kernels.start_ns) & inside
            if not chosen.any():
                continue
            start, end = kernels.start_ns[chosen], kernels.end_ns[chosen]
            wins, places = _running(edges, start, end), np.searchsorted(edges, start)
            del start, end
            began = np.full(len(edges), -1, np.int32)
            began[places] = places
            began = np.maximum.accumulate(began, out=began)[:-1]
            wins &= began > began_last
            label[wins], began_last[wins] = phase, began[wins]
    return label


def _only(kernels: Kernels, edges: Ints, chosen: Bools) -> Bools:
    """Return in which pieces only chosen kernels run."""
    if not chosen.any():
        return np.zeros(len(edges) - 1, bool)
    mine, others = (_running(edges, kernels.start_ns[each], kernels.end_ns[each]) for each in (chosen, ~chosen))
    return mine & ~others


def _phases(label: NDArray[np.uint8], step: Rows, asking: Bools) -> NDArray[np.uint8]:
    """Return the index in PHASES of each piece."""
    busy = label != _NOTHING
    before = label[_last_at(busy | np.append(True, step[1:] != step[:-1]))]
    ahead = _ahead(label, np.isin(label, _TRAINING), step)
    to_forward = ahead == Phase.FORWARD
    phase = np.full(len(label), OTHER, np.uint8)
    for each, place in _PLACE_OF.items():
        phase[before == each] = place
    phase[~busy & (_ahead(label, busy, step) == _NOTHING)] = OTHER
    outside = (label == Phase.OUTSIDE) | (~busy & (before != Phase.FORWARD))
    phase[(to_forward & outside) | (label == Phase.DATA) | (asking & ~busy)] = DATA
    return phase


def _last_at(chosen: Bools) -> Rows:
    """Return, for each index, the last chosen index at or before it."""
    last = np.arange(len(chosen), dtype=np.int32)
    last *= chosen
    return np.maximum.accumulate(last, out=last)


def _ahead(label: NDArray[np.uint8], chosen: Bools, step: Rows) -> NDArray[np.uint8]:
    """Return the label of the first chosen piece at or after each piece within its step, or _NOTHING."""
    last = len(label) - 1
    place = last - _last_at(chosen[::-1])[::-1]
    return np.where(chosen[place] & (step[place] == step), label[place], np.uint8(_NOTHING))
