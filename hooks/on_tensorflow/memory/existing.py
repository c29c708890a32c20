"""What was allocated when a memory window began.

If the allocator can list its blocks (`snapshot`), those existed, except blocks that the window saw allocated before the
list was made. Otherwise there are three sources. The first is what was followed from the first allocation to the end of
the first steps (`Follower`). The second is what the window sees freed, because a free is reported in full. The third is
what Python can see. A followed block was freed meanwhile if the window's first event at its address is an allocation. A
variable at another address than when it was followed gets a new buffer (`owners.renew`), so that the window sees the
old buffer freed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tbdprof.facts.records import AllocationKind
from tbdprof.hooks.on_tensorflow.session.events import MemoryEvent
from tbdprof.hooks.on_tensorflow.watch.owners import Owned

ALIGNMENT = 256  # the allocator's: the smallest block, and every block's size is a multiple of it


@dataclass(frozen=True, slots=True)
class Block:
    """A block of memory; `is_tensor` is set if TensorFlow or Python says so."""

    address: int
    requested_bytes: int
    allocated_bytes: int
    shape: str
    is_tensor: bool


def live(events: Iterable[MemoryEvent]) -> dict[str, dict[int, Block]]:
    """Return what is live after some events, by allocator and address.

    A block that outlives its operator is a tensor. So are the constants that a function is created with, whose data
    type is not reported.
    """
    found: dict[str, dict[int, Block]] = {}
    for event in events:
        blocks = found.setdefault(event.allocator, {})
        if event.kind == AllocationKind.ALLOCATED:
            blocks[event.address] = replace(_block(event), is_tensor=True)
        else:
            blocks.pop(event.address, None)
    return found


def existing(
    events: Sequence[MemoryEvent], followed: Mapping[int, Block], seen: Mapping[int, Owned], total_bytes: int | None
) -> list[Block]:
    """Return the blocks of one allocator that existed before its events.

    `seen` is what Python saw then. `total_bytes` is the allocator's total (None: not known). If all blocks together
    exceed it, the least certain ones are left out. These are first tensors that may lie in numpy's memory, then blocks
    that Python did not see, the latest followed first.
    """
    first: dict[int, MemoryEvent] = {}
    for event in events:
        first.setdefault(event.address, event)
    freed = [_freed(event, followed, seen) for event in first.values() if event.kind == AllocationKind.FREED]
    made = [_block(event) for event in first.values() if event.kind == AllocationKind.ALLOCATED]
    believed = [block for block in followed.values() if _agrees(block, seen)]
    starts = {block.address for block in (*freed, *believed)}
    moved = [_least(row) for row in seen.values() if row.address not in starts and row.name]
    moved = _apart(moved, [*freed, *made])
    kept = _apart(believed, [*freed, *made, *moved])
    others = [_least(row) for row in seen.values() if row.address not in starts and not row.name]
    others = _apart(others, [*freed, *made, *kept, *moved])
    sure = [*freed, *moved, *(block for block in kept if block.address in seen)]
    unseen = [block for block in kept if block.address not in seen]
    left = None if total_bytes is None else total_bytes - sum(block.allocated_bytes for block in sure)
    return [*sure, *_fitting([*unseen, *others], left)]


def held(
    events: Sequence[MemoryEvent],
    followed: Mapping[int, Block],
    seen: Mapping[int, Owned],
    blocks: Mapping[int, Block],
) -> list[Block]:
    """Return the blocks of one allocator that existed before its events, from the blocks it held during them."""
    first: dict[int, MemoryEvent] = {}
    for event in events:
        first.setdefault(event.address, event)
    freed = [_freed(event, followed, seen) for event in first.values() if event.kind == AllocationKind.FREED]
    return [*freed, *(_known(block, followed, seen) for block in blocks.values() if block.address not in first)]


def _freed(event: MemoryEvent, followed: Mapping[int, Block], seen: Mapping[int, Owned]) -> Block:
    """Return the block that was freed."""
    return _known(_block(event), followed, seen)


def _known(block: Block, followed: Mapping[int, Block], seen: Mapping[int, Owned]) -> Block:
    """Return a block with what else is known of it; if the block followed there is the same, that one says more."""
    known = followed.get(block.address)
    if known is not None and (known.requested_bytes, known.allocated_bytes) == (
        block.requested_bytes,
        block.allocated_bytes,
    ):
        block = known
    return replace(block, is_tensor=block.is_tensor or block.address in seen)


def _agrees(block: Block, seen: Mapping[int, Owned]) -> bool:
    """Return whether the followed block is large enough for what was seen there later."""
    return block.address not in seen or seen[block.address].bytes <= block.requested_bytes


def _apart(blocks: Iterable[Block], others: Sequence[Block]) -> list[Block]:
    """Return the blocks that overlap none of the others."""
    ranges = _Ranges(others)
    return [block for block in blocks if not ranges.overlap(block)]


class _Ranges:
    """The address ranges of blocks, to find overlaps."""

    def __init__(self, blocks: Iterable[Block]) -> None:
        ranges = [(block.address, block.address + block.allocated_bytes) for block in blocks]
        self._first, self._last = np.array(ranges, np.uint64).reshape(-1, 2).T

    def overlap(self, block: Block) -> bool:
        """Return whether a block overlaps one of these."""
        end = block.address + block.allocated_bytes
        return bool(((self._first < end) & (block.address < self._last)).any())


def _block(event: MemoryEvent) -> Block:
    return Block(event.address, event.requested_bytes, event.allocated_bytes, event.shape, event.dtype != 0)


def _least(row: Owned) -> Block:
    """Return a block for what only Python saw: its rounding is not known, so take the smallest possible."""
    return Block(row.address, row.bytes, -(-row.bytes // ALIGNMENT) * ALIGNMENT, row.shape, is_tensor=True)


def _fitting(blocks: Sequence[Block], left_bytes: int | None) -> list[Block]:
    kept = list(blocks)
    while left_bytes is not None and kept and sum(block.allocated_bytes for block in kept) > left_bytes:
        kept.pop()
    return kept
