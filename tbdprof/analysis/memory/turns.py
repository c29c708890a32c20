"""Threads of one process that train at once: each step of the run is one update by any of them.

The end of a step then says nothing about the other threads. So each thread has its own turns, and a turn ends with
that thread's optimizer step. If at most one thread updates weights, there are no turns, and the run's steps apply.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tbdprof.analysis.spans import SpanTree
from tbdprof.facts.arrays import Bools, Ints
from tbdprof.facts.records import Phase, SpanKind


@dataclass(frozen=True, slots=True)
class Turns:
    """The ordered sequence numbers at which the turns of each thread end."""

    ends: Mapping[int, Ints]

    def of(self, thread: Ints) -> Bools:
        """Return which of the threads have their own turns."""
        return np.isin(thread, list(self.ends))

    def crossed(self, thread: Ints, start: Ints, end: Ints) -> Ints:
        """Return how many of its thread's turns end between two sequence numbers, 0 for a thread without turns."""
        count = np.zeros(len(thread), np.int64)
        for each, ends in self.ends.items():
            mine = thread == each
            count[mine] = np.searchsorted(ends, end[mine]) - np.searchsorted(ends, start[mine])
        return count

    def settled(self, marks: Ints) -> Ints:
        """Return the ends of steps from when each thread has ended a turn, but at least the last two."""
        begun = max((int(ends[0]) for ends in self.ends.values()), default=-1)
        first = int(np.searchsorted(marks, begun))
        return marks[max(0, min(first, len(marks) - 2)) :]


NO_TURNS = Turns({})


def turns(tree: SpanTree, marks: Ints) -> Turns:
    """Return the turns of the threads that update weights, if several do; `marks` are the ends of steps."""
    rows = tree.rows
    updates = (rows["kind"] == SpanKind.PHASE) & (rows["phase"] == Phase.UPDATE)
    every = np.flatnonzero(updates)
    outermost = every[~tree.any_above(tree.above(every), updates)]
    threads, count = np.unique(rows["thread"][outermost], return_counts=True)
    # A phase assembled from operators of several threads is recorded on a thread that has nothing else.
    computes = np.isin(threads, rows["thread"][rows["kind"] == SpanKind.OPERATOR])
    threads = threads[computes | (count > 1)]
    outermost = outermost[np.isin(rows["thread"][outermost], threads)]
    if len(threads) < 2:
        return NO_TURNS
    a_step = max(1, round(len(outermost) / max(1, len(marks))))  # updates per step, such as the two of a GAN
    ends = {int(each): np.sort(rows["last_sequence"][outermost][rows["thread"][outermost] == each]) for each in threads}
    return Turns({thread: found[::-1][::a_step][::-1] for thread, found in ends.items()})
