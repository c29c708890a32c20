"""What an allocator's list of its pieces says of the device's memory it holds: hand-made lists."""

from typing import Any

import pytest

pb = pytest.importorskip("tensorflow.core.protobuf.bfc_memory_map_pb2")
snapshot = pytest.importorskip("tbdprof.hooks.on_tensorflow.memory.snapshot")

Piece = tuple[int, int, bool]  # address, bytes, in use


def read(*pieces: Piece) -> Any:
    dump = pb.MemoryDump(allocator_name="GPU_0_bfc")
    for address, size, in_use in pieces:
        dump.chunk.add(address=address, size=size, requested_size=size - 6, in_use=in_use)
    return snapshot._read(dump.SerializeToString())


def test_what_is_in_use_is_a_block_and_all_pieces_are_reserved() -> None:
    found = read((1000, 256, True), (1256, 512, False), (1768, 256, True))
    assert [(each.address, each.requested_bytes, each.allocated_bytes) for each in found.blocks.values()] == [
        (1000, 250, 256),
        (1768, 250, 256),
    ]
    assert (found.allocator, found.reserved_bytes, found.allocated_bytes) == ("GPU_0_bfc", 1024, 512)


def test_free_pieces_that_touch_what_is_in_use_are_fragments_and_a_region_that_is_free_is_none() -> None:
    in_use = ((5256, 256, True), (5000, 256, False))  # in no order, and they touch
    free = ((9000, 1024, False), (10024, 1024, False))
    assert read(*in_use, *free).fragments_bytes == 256


def test_an_allocator_that_holds_nothing_reserves_nothing() -> None:
    assert (read().reserved_bytes, read().fragments_bytes) == (0, 0)


def test_a_gpu_that_tensorflow_has_not_begun_with_is_not_asked() -> None:
    assert snapshot.take("cuda:7") is None
