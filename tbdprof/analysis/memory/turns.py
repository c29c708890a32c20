"""Threads of one process that train at once, each step of the run being one update by any of them.

Then the end of a step says nothing of what the other threads are at: each has turns of its own, which end as its
optimizer's step does. Where at most one thread updates weights there are none, and the steps of the run are everyone's.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tbdprof.analysis.spans import SpanTree
from tbdprof.facts.arrays import Bools, Ints
from tbdprof.facts.records import Phase, SpanKind


@dataclass(frozen=True, slots=True)
class Turns:
    """Where the turns of each thread end, as sequences in order."""

    ends: Mapping[int, Ints]

    def of(self, thread: Ints) -> Bools:
        """Tell which of some threads have turns of their own."""
        return np.isin(thread, list(self.ends))

    def crossed(self, thread: Ints, start: Ints, end: Ints) -> Ints:
        """Return how many ends of its thread's turns lie between two points of the order, 0 for other threads."""
        count = np.zeros(len(thread), np.int64)
        for each, ends in self.ends.items():
            mine = thread == each
            count[mine] = np.searchsorted(ends, end[mine]) - np.searchsorted(ends, start[mine])
        return count

    def settled(self, marks: Ints) -> Ints:
        """Return the ends of steps from where each thread has ended a turn, at least the last two."""
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
    # A phase that is put together from operators of any thread stands on a thread that has nothing else.
    computes = np.isin(threads, rows["thread"][rows["kind"] == SpanKind.OPERATOR])
    threads = threads[computes | (count > 1)]
    outermost = outermost[np.isin(rows["thread"][outermost], threads)]
    if len(threads) < 2:
        return NO_TURNS
    a_step = max(1, round(len(outermost) / max(1, len(marks))))  # updates, as of the two networks of a GAN
    ends = {int(each): np.sort(rows["last_sequence"][outermost][rows["thread"][outermost] == each]) for each in threads}
    return Turns({thread: found[::-1][::a_step][::-1] for thread, found in ends.items()})
