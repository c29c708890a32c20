"""Owners read while another thread trains stand where their block was theirs."""

import pytest

placing = pytest.importorskip("tbdprof.hooks.on_tensorflow.memory.owner_places")
from tbdprof.facts.records import AllocationKind, Role  # noqa: E402
from tbdprof.hooks.on_tensorflow.session.events import MarkEvent, MemoryEvent  # noqa: E402
from tbdprof.hooks.on_tensorflow.watch.owners import Owned  # noqa: E402 - needs TensorFlow

READER, TRAINER = 1, 2
A, B, C = 0x1000, 0x2000, 0x3000


def made(address: int, thread: int = TRAINER) -> MemoryEvent:
    return _memory(AllocationKind.ALLOCATED, address, thread)


def freed(address: int, thread: int = TRAINER) -> MemoryEvent:
    return _memory(AllocationKind.FREED, address, thread)


def mark(name: str) -> MarkEvent:
    return MarkEvent(name, READER, 0)


def owner(address: int, number: int, name: str = "kernel", role: Role = Role.WEIGHT) -> Owned:
    return Owned(role, name, "cpu", address, 4, "[1]", number)


def state(address: int, number: int, slot: str) -> Owned:
    return owner(address, number, f"kernel/{slot}", Role.OPTIMIZER_STATE)


def places(events: list[MemoryEvent | MarkEvent], *reads: list[Owned]) -> list[list[tuple[int, str, int]]]:
    """Return for each reading the place, name and address of each owner; the k-th event is at place k."""
    order = list(enumerate(events))
    found = placing.Placing(order, reads)
    ends = {event.name: place for place, event in order if isinstance(event, MarkEvent)}
    return [
        [(place, row.name, row.address) for place, row in found.of(number, ends[f"read {number}"])]
        for number in range(len(reads))
    ]


def test_without_other_threads_all_stand_at_the_end_of_the_reading() -> None:
    assert places([freed(A), mark("read 0")], [owner(A, -1)]) == [[(1, "kernel", A)]]


def test_what_stays_stands_at_the_end_of_the_reading() -> None:
    events = [mark("reading"), mark("held 0"), made(B), mark("read 0"), freed(A)]
    assert places(events, [owner(A, 0)]) == [[(3, "kernel", A)]]


def test_what_is_gone_and_anothers_at_the_end_stands_where_it_was_held() -> None:
    events = [mark("reading"), mark("held 0"), freed(A), made(A), mark("read 0")]
    assert places(events, [owner(A, 0)]) == [[(1, "kernel", A)]]


def test_a_copy_made_for_the_reader_is_nobodys() -> None:
    events = [mark("reading"), made(B, READER), mark("held 0"), freed(B, READER), mark("read 0")]
    assert places(events, [owner(B, 0)]) == [[]]


def test_a_buffer_another_thread_made_meanwhile_is_the_variables() -> None:
    events = [mark("reading"), made(B), mark("held 0"), mark("read 0")]
    assert places(events, [owner(B, 0)]) == [[(3, "kernel", B)]]


def test_no_weight_stands_where_two_buffers_of_one_live() -> None:
    first = [mark("reading"), mark("held 0"), mark("held 1"), mark("read 0")]
    amid = [mark("reading"), mark("held 2"), made(B), mark("held 3"), mark("read 1"), freed(A)]
    last = [mark("reading"), mark("held 4"), mark("held 5"), mark("read 2")]
    reads = [[owner(C, 2 * k, "bias"), owner(A if k < 2 else B, 2 * k + 1)] for k in range(3)]
    assert places([*first, *amid, *last], *reads) == [
        [(3, "bias", C), (3, "kernel", A)],
        [(5, "bias", C)],
        [(13, "bias", C), (13, "kernel", B)],
    ]


def test_the_states_of_a_parameter_stand_together() -> None:
    events = [mark("reading"), mark("held 0"), mark("held 1"), mark("held 2"), freed(B), mark("read 0")]
    rows = [owner(C, 0, "adam/iteration", Role.OPTIMIZER_STATE), state(A, 1, "momentum"), state(B, 2, "velocity")]
    assert places(events, rows) == [[(5, "adam/iteration", C), (2, "kernel/momentum", A), (3, "kernel/velocity", B)]]


def test_states_that_all_moved_are_left_to_another_reading() -> None:
    events = [mark("reading"), mark("held 0"), mark("held 1"), freed(A), freed(B), mark("read 0")]
    assert places(events, [state(A, 0, "momentum"), state(B, 1, "velocity")]) == [[]]


def _memory(kind: AllocationKind, address: int, thread: int) -> MemoryEvent:
    return MemoryEvent(0, thread, kind, "mklcpu", address, 4, 4, 0, 0, "", "", 0, "", 0)
