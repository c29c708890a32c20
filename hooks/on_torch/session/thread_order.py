"""Put the events of several threads into one order: the order in which torch counted their memory.

A thread counts an allocation under a lock and takes the time afterwards. Another thread may count, and take its time,
in between. So in order of time alone, the running totals are out of order. Each event reports the total after it, which
also gives the total before it. In the right order, the total before each event is the total after the last one, and no
event is counted before its thread's last event or after its own time.

Several events may fit the same total. So the search follows a few orders side by side, and keeps the one in which the
fewest totals contradict. A thread that is not followed also changes the total, so that none of the events fits: then
one is taken that is possible by its time.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tbdprof.hooks.on_torch.session.events import Enter, Event, Leave, MemoryEvent

_PATHS = 16  # orders that the search follows at most
_MARGIN = 2  # an order with so many contradictions more than the best one is given up
_CLOCKS_NS = 1_000  # the clocks of two cores may differ by so much

Timed = tuple[int, Event]


@dataclass(frozen=True, slots=True)
class _Counted:
    """An allocation or a free: its index, when torch can have counted it, and torch's totals around it."""

    place: int
    earliest_ns: int
    latest_ns: int
    before_bytes: int
    after_bytes: int


class _Path(NamedTuple):
    """The beginning of a possible order."""

    contradictions: int
    out_of_time: int  # how often an event was taken before another of an earlier time
    taken: tuple[int, ...]  # how many events of each thread
    total_bytes: int
    steps: "_Steps | None"


class _Steps(NamedTuple):
    """The events of a path, last one first."""

    place: int
    before: "_Steps | None"


def thread_of(event: Event) -> int:
    """Return the thread in which an event happened."""
    return event.region.thread if isinstance(event, Enter | Leave) else event.thread


def in_order(events: Sequence[Timed]) -> list[Timed]:
    """Take events in order of time; return them in the order in which they happened, with adjusted times."""
    orders = [_counting_order(threads) for threads in _by_device(events)]
    if all(order == sorted(order) for order in orders):
        return list(events)
    ranks = {place: rank for order in orders for rank, place in enumerate(order)}
    times = {place: time_ns for order in orders for place, time_ns in _times(events, order)}
    threads: defaultdict[int, list[tuple[int, int, int]]] = defaultdict(list)  # time, rank, place
    for place, (time_ns, event) in enumerate(events):
        own = threads[thread_of(event)]
        at_ns = max(times.get(place, time_ns), own[-1][0] if own else 0)
        own.append((at_ns, ranks.get(place, -1), place))
    return [(at_ns, events[place][1]) for at_ns, _, place in heapq.merge(*threads.values())]


def _by_device(events: Sequence[Timed]) -> list[list[list[_Counted]]]:
    """Return for each device its allocations and frees: one list for each thread that made some."""
    devices: defaultdict[str, defaultdict[int, list[_Counted]]] = defaultdict(lambda: defaultdict(list))
    last_ns: defaultdict[int, int] = defaultdict(int)  # of each thread's last event
    for place, (time_ns, event) in enumerate(events):
        thread = thread_of(event)
        if isinstance(event, MemoryEvent):
            before_bytes = event.total_bytes - event.bytes
            counted = _Counted(place, last_ns[thread], time_ns, before_bytes, event.total_bytes)
            devices[event.device][thread].append(counted)
        last_ns[thread] = time_ns
    return [list(threads.values()) for threads in devices.values()]


def _counting_order(threads: Sequence[Sequence[_Counted]]) -> list[int]:
    """Return the indices of one device's allocations and frees in the order in which torch counted them."""
    if len(threads) == 1:
        return [event.place for event in threads[0]]
    paths = [_Path(0, 0, (0,) * len(threads), 0, None)]
    for _ in range(sum(map(len, threads))):
        longer: dict[tuple[tuple[int, ...], int], _Path] = {}
        for path in paths:
            for grown in _continued(path, threads):
                key = grown.taken, grown.total_bytes
                longer[key] = min(grown, longer.get(key, grown), key=_cost)
        paths = heapq.nsmallest(_PATHS, longer.values(), key=_cost)
        paths = [path for path in paths if path.contradictions <= paths[0].contradictions + _MARGIN]
    order, steps = list[int](), paths[0].steps
    while steps is not None:
        order.append(steps.place)
        steps = steps.before
    return order[::-1]


def _continued(path: _Path, threads: Sequence[Sequence[_Counted]]) -> list[_Path]:
    """Return a path with each event that may come next: of those that its time allows, those that fit the total."""
    heads = [(thread, own[path.taken[thread]]) for thread, own in enumerate(threads) if path.taken[thread] < len(own)]
    by_then_ns = min(event.latest_ns for _, event in heads)  # one of them was counted by then
    possible = [(thread, event) for thread, event in heads if event.earliest_ns <= by_then_ns + _CLOCKS_NS]
    fitting = [(thread, event) for thread, event in possible if event.before_bytes == path.total_bytes]
    return [
        _Path(
            path.contradictions + (not fitting),
            path.out_of_time + (event.latest_ns > by_then_ns),
            (*path.taken[:thread], path.taken[thread] + 1, *path.taken[thread + 1 :]),
            event.after_bytes,
            _Steps(event.place, path.steps),
        )
        for thread, event in fitting or possible
    ]


def _cost(path: _Path) -> tuple[int, int]:
    return path.contradictions, path.out_of_time


def _times(events: Sequence[Timed], order: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield each event's index, and the latest time at which it can have been counted: before any later one."""
    latest_ns = events[order[-1]][0]
    for place in reversed(order):
        latest_ns = min(latest_ns, events[place][0])
        yield place, latest_ns
