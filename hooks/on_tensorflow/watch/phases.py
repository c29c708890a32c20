"""Phases of training in eager-mode Python code, as intervals of a trace.

Inside a `tf.function`, operators of all phases run as soon as they can, and each has its own phase (`node.Node.phase`).
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from tbdprof.facts.records import Phase
from tbdprof.hooks.on_tensorflow.session.events import MarkEvent

BEGIN, END = "begin ", "end "


@dataclass(frozen=True, slots=True)
class Interval:
    """A phase on a thread; intervals of a thread nest."""

    phase: Phase
    thread: int
    start_ns: int
    end_ns: int


def intervals(marks: Sequence[MarkEvent], end_ns: int) -> list[Interval]:
    """Return the phases between markers, in the order in which they began; an unfinished phase ends at `end_ns`."""
    open_: defaultdict[int, list[tuple[Phase, int]]] = defaultdict(list)
    found = []
    for mark in marks:
        stack = open_[mark.thread]
        if mark.name.startswith(BEGIN):
            stack.append((Phase[mark.name.removeprefix(BEGIN)], mark.time_ns))
        elif mark.name.startswith(END) and stack:
            phase, start_ns = stack.pop()
            found.append(Interval(phase, mark.thread, start_ns, mark.time_ns))
    for thread, stack in open_.items():
        found += [Interval(phase, thread, start_ns, end_ns) for phase, start_ns in stack]
    return sorted(found, key=lambda interval: (interval.start_ns, -interval.end_ns))
