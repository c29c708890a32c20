"""Events of several threads come into the order in which torch counted their memory, judged by the running totals."""

import random
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

import pytest

from tbdprof.hooks.on_torch.session.events import Enter, MemoryEvent, Region, Scope
from tbdprof.hooks.on_torch.session.thread_order import Timed, in_order, thread_of

MOMENT_NS = 2_000
SIZES = (4, 8, 48, 960)  # few, so that several events fit the same total


def allocation(thread: int, size: int, total: int, address: int = 0) -> MemoryEvent:
    return MemoryEvent("cpu", thread, address, size, total, True)


def entered(thread: int, time_ns: int) -> Enter:
    return Enter(Region(f"{thread}", Scope.FUNCTION, thread, time_ns, time_ns + 1, -1))


def threads_at_work(seed: int, *, threads: int = 3, steps: int = 300) -> list[Timed]:
    """Return events of threads that count under a lock, and take the time some moments later."""
    chance, now_ns, total = random.Random(seed), 0, 0
    last_ns, live = defaultdict[int, int](int), defaultdict[int, list[int]](list)
    events = list[Timed]()
    for address in range(steps):
        thread = chance.randrange(threads)
        now_ns = max(now_ns + MOMENT_NS * chance.randint(1, 3), last_ns[thread] + MOMENT_NS)
        if chance.random() < 0.3:
            events.append((now_ns - 1, entered(thread, now_ns - 1)))
        frees = live[thread] and chance.random() < 0.5
        size = -live[thread].pop(chance.randrange(len(live[thread]))) if frees else chance.choice(SIZES)
        if size > 0:
            live[thread].append(size)
        total += size
        last_ns[thread] = now_ns + MOMENT_NS * chance.choice((0, 0, 0, 1, 5, 20))
        events.append((last_ns[thread], allocation(thread, size, total, address)))
    return sorted(events, key=lambda event: event[0])


def memory(events: Sequence[Timed]) -> list[MemoryEvent]:
    return [event for _, event in events if isinstance(event, MemoryEvent)]


def contradictions(events: Sequence[Timed]) -> int:
    """Return how many allocations and frees do not begin at the total that the one before left."""
    return sum(later.total_bytes - later.bytes != earlier.total_bytes for earlier, later in pairwise(memory(events)))


@pytest.mark.parametrize("seed", range(20))
def test_the_totals_show_the_order(seed: int) -> None:
    events = threads_at_work(seed)
    ordered = in_order(events)

    assert contradictions(events) > 0
    assert contradictions(ordered) == 0
    assert [time_ns for time_ns, _ in ordered] == sorted(time_ns for time_ns, _ in ordered)
    for thread in range(3):
        own, before = ([event for _, event in each if thread_of(event) == thread] for each in (ordered, events))
        assert own == before


def test_events_in_order_of_time_stay_as_they_are() -> None:
    events: list[Timed] = [(1, allocation(1, 4, 4)), (2, entered(2, 2)), (3, allocation(2, 8, 12))]
    assert in_order(events) == events


def test_of_two_that_fit_the_one_is_taken_that_leaves_no_contradiction() -> None:
    """Two threads allocate at a total of 0. The one whose time is earlier was counted after the other's was freed."""
    last, first, between = allocation(1, 8, 8), allocation(2, 4, 4), allocation(3, -4, 0)
    events: list[Timed] = [(5, last), (6, first), (7, between)]
    assert memory(in_order(events)) == [first, between, last]


def test_an_event_that_fits_the_total_but_not_the_time_waits() -> None:
    """A thread that is not followed allocated 960 bytes, so that nothing fits for a while."""
    first, second, third = allocation(1, 48, 1008), allocation(1, -48, 960), allocation(1, -960, 0)
    again: list[Timed] = [(90_000, entered(2, 90_000)), (100_000, allocation(2, 960, 960))]
    events: list[Timed] = [(1_000, first), (2_000, second), (3_000, third), *again]
    assert in_order(events) == events


@pytest.mark.parametrize("lost", [10, 150, 290])
def test_an_event_that_nothing_reports_disturbs_the_order_little(lost: int) -> None:
    events = threads_at_work(1)
    gone = memory(events)[lost]
    ordered = in_order([timed for timed in events if timed[1] is not gone])

    assert 1 <= contradictions(ordered) <= 2
    assert len(memory(ordered)) == len(memory(events)) - 1


def test_nothing_is_lost_where_totals_make_no_sense() -> None:
    chance = random.Random(0)
    events = [(at, allocation(at % 3, chance.choice(SIZES), chance.randrange(1000), at)) for at in range(200)]
    assert sorted(event.address for event in memory(in_order(events))) == list(range(200))


def test_each_device_has_a_total_of_its_own() -> None:
    cpu, gpu = allocation(1, 4, 4), MemoryEvent("cuda:0", 1, 1, 512, 512, True)
    late, later = MemoryEvent("cuda:0", 2, 2, -512, 0, True), allocation(2, 8, 12)
    events: list[Timed] = [(1, later), (2, cpu), (3, gpu), (4, late)]
    ordered = memory(in_order(events))
    assert [event for event in ordered if event.device == "cuda:0"] == [gpu, late]
