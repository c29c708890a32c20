"""What was there before a window, from what was followed, seen and freed: hand-made events of a small allocator."""

from typing import Any

import pytest

existing = pytest.importorskip("tbdprof.hooks.on_tensorflow.memory.existing")
owners = pytest.importorskip("tbdprof.hooks.on_tensorflow.watch.owners")
trace = pytest.importorskip("tbdprof.hooks.on_tensorflow.session.events")
from tbdprof.facts.records import AllocationKind, Role  # noqa: E402

MADE, FREED = AllocationKind.ALLOCATED, AllocationKind.FREED


def event(kind: AllocationKind, address: int, requested: int, allocated: int, dtype: int = 1) -> Any:
    return trace.MemoryEvent(
        time_ns=0, thread=1, kind=kind, allocator="bfc", address=address, requested_bytes=requested,
        allocated_bytes=allocated, total_bytes=0, peak_bytes=0, node="", region="", dtype=dtype, shape="", step=0,
    )  # fmt: skip


def block(address: int, requested: int, allocated: int) -> Any:
    return existing.Block(address, requested, allocated, "", is_tensor=True)


def seen(address: int, size: int, name: str = "") -> dict[int, Any]:
    return {address: owners.Owned(Role.UNKNOWN, name, "cpu", address, size, "[]")}


def found(events: list[Any], followed: list[Any], there: dict[int, Any], total: int | None) -> list[tuple[int, int]]:
    blocks = existing.existing(events, {each.address: each for each in followed}, there, total)
    return sorted((each.address, each.allocated_bytes) for each in blocks)


def test_what_was_followed_and_lies_undisturbed_is_there() -> None:
    assert found([], [block(1000, 200, 256)], {}, 256) == [(1000, 256)]


def test_what_is_freed_first_was_there_in_the_size_that_is_reported() -> None:
    assert found([event(FREED, 1000, 200, 512)], [block(1000, 100, 256)], {}, 512) == [(1000, 512)]


def test_what_was_followed_where_another_is_made_first_has_gone() -> None:
    assert found([event(MADE, 1100, 10, 256)], [block(1000, 200, 256)], {}, None) == []


def test_a_variable_that_moved_is_there_with_the_least_rounding_there_can_be() -> None:
    assert found([], [block(1000, 200, 256)], seen(1100, 300, "kernel"), None) == [(1100, 512)]


def test_a_tensor_that_lies_in_a_followed_block_is_a_part_of_it() -> None:
    assert found([], [block(1000, 2000, 2048)], seen(1100, 300), None) == [(1000, 2048)]


def test_a_tensor_too_many_for_the_total_lies_elsewhere() -> None:
    assert found([], [block(1000, 200, 256)], seen(9000, 300), 256) == [(1000, 256)]


def test_of_what_nobody_saw_the_latest_is_left_out_where_the_total_is_less() -> None:
    followed = [block(1000, 200, 256), block(2000, 200, 256)]
    assert found([], followed, {}, 300) == [(1000, 256)]
    assert found([], followed, seen(2000, 200), 300) == [(2000, 256)]


def test_what_was_made_and_freed_lives_no_more() -> None:
    events = [event(MADE, 1000, 1, 256), event(MADE, 2000, 1, 256, dtype=0), event(FREED, 1000, 1, 256)]
    (left,) = existing.live(events)["bfc"].values()
    assert (left.address, left.is_tensor) == (2000, True)


def held(events: list[Any], followed: list[Any], there: dict[int, Any], blocks: list[Any]) -> list[Any]:
    by_address = [{each.address: each for each in some} for some in (followed, blocks)]
    return sorted(existing.held(events, by_address[0], there, by_address[1]), key=lambda each: each.address)


def of_allocator(address: int, requested: int, allocated: int) -> Any:
    return existing.Block(address, requested, allocated, "", is_tensor=False)


def test_what_the_allocator_holds_was_there_but_for_what_was_made_meanwhile() -> None:
    blocks = [of_allocator(1000, 200, 256), of_allocator(2000, 10, 256)]
    assert held([event(MADE, 2000, 10, 256)], [], {}, blocks) == blocks[:1]


def test_what_the_allocator_no_longer_holds_was_there_if_it_was_freed_meanwhile() -> None:
    made_again = [event(FREED, 1000, 200, 256), event(MADE, 1000, 10, 256)]
    (only,) = held(made_again, [], {}, [of_allocator(1000, 10, 256)])
    assert only.requested_bytes == 200


def test_what_was_followed_says_more_of_a_block_that_is_held_if_it_is_the_same() -> None:
    blocks = [of_allocator(1000, 200, 256), of_allocator(2000, 10, 256), of_allocator(3000, 8, 256)]
    known = [block(1000, 200, 256), block(2000, 20, 256)]
    assert [each.is_tensor for each in held([], known, seen(3000, 8), blocks)] == [True, False, True]


def test_what_was_followed_and_is_not_held_has_gone() -> None:
    assert held([], [block(1000, 200, 256)], {}, []) == []
