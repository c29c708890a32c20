"""Lifetimes from the order of allocations and frees."""

import numpy as np
from make import MemoryStory

from tbdprof.analysis.memory.blocks import BEFORE, NEVER, lifetimes


def story_of_a_reused_address() -> MemoryStory:
    story = MemoryStory()
    first = story.allocate(10)
    story.free(first)
    story.allocate(20, address=first)
    return story


def test_an_address_used_again_is_another_block():
    story = story_of_a_reused_address()

    blocks, _ = lifetimes(story.window().table("allocation"))

    assert blocks.size_bytes.tolist() == [10, 20]
    assert blocks.start.tolist() == [1, 3]
    assert blocks.end.tolist() == [2, NEVER]


def test_an_owner_is_found_by_address_and_lifetime():
    story = story_of_a_reused_address()
    blocks, _ = lifetimes(story.window().table("allocation"))
    address = blocks.address[:1].repeat(4)

    found = blocks.find(address, np.array([1, 2, 3, 9]))

    assert found.tolist() == [
        -1,
        -1,
        -1,
        1,
    ]  # at the very event nothing lives; after the last, the second block does


def test_levels_follow_every_event():
    story = MemoryStory(base_total=5)
    story.existing(5)
    kept = story.allocate(10)
    freed = story.allocate(30)
    story.free(freed)
    assert kept != freed

    _, levels = lifetimes(story.window().table("allocation"))

    assert levels.known_bytes.tolist() == [15, 45, 15]
    assert levels.total_bytes.tolist() == [15, 45, 15]
    assert (levels.base_bytes, levels.base_total_bytes) == (5, 5)


def test_an_existing_block_begins_before_everything_and_ends_where_it_is_freed():
    story = MemoryStory(base_total=8)
    address = story.existing(8)
    story.free(address)

    blocks, levels = lifetimes(story.window().table("allocation"))

    assert blocks.start.tolist() == [BEFORE]
    assert blocks.end.tolist() == [1]
    assert levels.known_bytes.tolist() == [0]


def test_a_free_of_memory_nobody_reported_changes_no_block():
    story = MemoryStory(base_total=100)
    story.sizes[0xABC] = 60
    story.free(0xABC)
    story.allocate(7)

    blocks, levels = lifetimes(story.window().table("allocation"))

    assert blocks.size_bytes.tolist() == [7]
    assert levels.known_bytes.tolist() == [0, 7]
    assert levels.total_bytes.tolist() == [40, 47]


def test_an_allocation_where_a_block_still_lives_ends_that_block():
    story = MemoryStory()
    address = story.allocate(10)
    story.allocate(4, address=address)

    blocks, levels = lifetimes(story.window().table("allocation"))

    assert blocks.end.tolist() == [2, NEVER]
    assert levels.known_bytes.tolist() == [10, 4]
