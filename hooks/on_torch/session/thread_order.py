"""Put the events of several threads into one order: the order in which torch counted their memory.

A thread counts an allocation under a lock and takes the time afterwards. Another thread may count, and take its time,
in between. So in order of time alone, the running totals are out of order. Each event reports the total after it, which
also gives the total before it. The next event is the one, among the threads' next events, whose total before it equals
the last total. A thread's own events keep their order.
"""

import heapq
from collections import defaultdict, deque
from collections.abc import Sequence

from tbdprof.hooks.on_torch.session.events import Enter, Event, Leave, MemoryEvent

Timed = tuple[int, Event]


def thread_of(event: Event) -> int:
    """Return the thread in which an event happened."""
    return event.region.thread if isinstance(event, Enter | Leave) else event.thread


def in_order(events: Sequence[Timed]) -> list[Timed]:
    """Take events in order of time; return them in the order in which they happened, with adjusted times."""
    ranks = _ranks(events)
    if not ranks:
        return list(events)
    times = _times(events, ranks)
    threads: defaultdict[int, list[tuple[int, int, int]]] = defaultdict(list)  # time, rank, place
    for place, (time_ns, event) in enumerate(events):
        own = threads[thread_of(event)]
        at_ns = max(times.get(place, time_ns), own[-1][0] if own else 0)
        own.append((at_ns, ranks.get(place, -1), place))
    return [(at_ns, events[place][1]) for at_ns, _, place in heapq.merge(*threads.values())]


def _ranks(events: Sequence[Timed]) -> dict[int, int]:
    """Map the index of each allocation and free to its rank in counting order; {} if that is the order of time."""
    devices: defaultdict[str, list[int]] = defaultdict(list)
    for place, (_, event) in enumerate(events):
        if isinstance(event, MemoryEvent):
            devices[event.device].append(place)
    chains = {device: _chain(events, places) for device, places in devices.items()}
    if all(chain == devices[device] for device, chain in chains.items()):
        return {}
    return {place: rank for chain in chains.values() for rank, place in enumerate(chain)}


def _chain(events: Sequence[Timed], places: Sequence[int]) -> list[int]:
    """Return the indices of one device's allocations and frees in counting order."""
    waiting: defaultdict[int, deque[int]] = defaultdict(deque)
    for place in places:
        waiting[thread_of(events[place][1])].append(place)
    if len(waiting) < 2:
        return list(places)
    chain, total = list[int](), 0
    while waiting:
        heads = sorted(queue[0] for queue in waiting.values())
        # If none fits, a thread that is not followed counted in between.
        chosen = next((place for place in heads if _before(events[place][1]) == total), heads[0])
        chain.append(chosen)
        event = events[chosen][1]
        total = _before(event) + _bytes(event)
        queue = waiting[thread_of(event)]
        queue.popleft()
        if not queue:
            del waiting[thread_of(event)]
    return chain


def _before(event: Event) -> int:
    return event.total_bytes - event.bytes if isinstance(event, MemoryEvent) else 0


def _bytes(event: Event) -> int:
    return event.bytes if isinstance(event, MemoryEvent) else 0


def _times(events: Sequence[Timed], ranks: dict[int, int]) -> dict[int, int]:
    """Return the latest time at which each allocation and free can have been counted: before any later one."""
    devices: defaultdict[str, list[int]] = defaultdict(list)
    for place in sorted(ranks, key=ranks.__getitem__, reverse=True):
        event = events[place][1]
        if isinstance(event, MemoryEvent):
            devices[event.device].append(place)
    times = dict[int, int]()
    for places in devices.values():
        earliest = events[places[0]][0]
        for place in places:
            times[place] = earliest = min(earliest, events[place][0])
    return times
