"""What was allocated when a memory window began.

The allocator writes down its blocks (`snapshot`): they are what was there, but for those the window saw made
before that. Else known are: what was followed from the first allocation on until the end of the first steps
(`Follower`); what the window itself sees freed, which it is told of in full; and what Python can see then. A block that
was followed where the window sees another made first has gone in between. A variable that lies elsewhere than when it
was followed is given a new buffer (`owners.renew`), so that the old one is seen freed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tbdprof.facts.records import AllocationKind
from tbdprof.hooks.on_tensorflow.session.events import MemoryEvent
from tbdprof.hooks.on_tensorflow.watch.owners import Owned

ALIGNMENT = 256  # the allocator's: a block has at least this much, and a multiple of it


@dataclass(frozen=True, slots=True)
class Block:
    """A block of memory; `is_tensor` where TensorFlow or Python say so."""

    address: int
    requested_bytes: int
    allocated_bytes: int
    shape: str
    is_tensor: bool


def live(events: Iterable[MemoryEvent]) -> dict[str, dict[int, Block]]:
    """Return what lives after some events, by allocator and address.

    Whatever outlives an operator is a tensor's; so are the constants a function is made with, whose type is not told.
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
    """Return the blocks of one allocator that were there before its events.

    `seen` is what Python saw then. Where all is more than the allocator's total (None: not known), what is least
    sure is left out: tensors that may lie in memory of numpy's, then what nobody saw, the latest followed first.
    """
    first: dict[int, MemoryEvent] = {}
    for event in events:
        first.setdefault(event.address, event)
    told = [_freed(event, followed, seen) for event in first.values() if event.kind == AllocationKind.FREED]
    made = [_block(event) for event in first.values() if event.kind == AllocationKind.ALLOCATED]
    believed = [block for block in followed.values() if _agrees(block, seen)]
    starts = {block.address for block in (*told, *believed)}
    moved = [_least(row) for row in seen.values() if row.address not in starts and row.name]
    moved = _apart(moved, [*told, *made])
    kept = _apart(believed, [*told, *made, *moved])
    others = [_least(row) for row in seen.values() if row.address not in starts and not row.name]
    others = _apart(others, [*told, *made, *kept, *moved])
    sure = [*told, *moved, *(block for block in kept if block.address in seen)]
    unseen = [block for block in kept if block.address not in seen]
    left = None if total_bytes is None else total_bytes - sum(block.allocated_bytes for block in sure)
    return [*sure, *_fitting([*unseen, *others], left)]


def held(
    events: Sequence[MemoryEvent],
    followed: Mapping[int, Block],
    seen: Mapping[int, Owned],
    blocks: Mapping[int, Block],
) -> list[Block]:
    """Return the blocks of one allocator that were there before its events, from those it held amid them."""
    first: dict[int, MemoryEvent] = {}
    for event in events:
        first.setdefault(event.address, event)
    told = [_freed(event, followed, seen) for event in first.values() if event.kind == AllocationKind.FREED]
    return [*told, *(_known(block, followed, seen) for block in blocks.values() if block.address not in first)]


def _freed(event: MemoryEvent, followed: Mapping[int, Block], seen: Mapping[int, Owned]) -> Block:
    """Return the block that was freed."""
    return _known(_block(event), followed, seen)


def _known(block: Block, followed: Mapping[int, Block], seen: Mapping[int, Owned]) -> Block:
    """Return a block with what else is known of it; what was followed there tells more, if it is the same."""
    known = followed.get(block.address)
    if known is not None and (known.requested_bytes, known.allocated_bytes) == (
        block.requested_bytes,
        block.allocated_bytes,
    ):
        block = known
    return replace(block, is_tensor=block.is_tensor or block.address in seen)


def _agrees(block: Block, seen: Mapping[int, Owned]) -> bool:
    """Tell whether what was followed is large enough for what was seen there later."""
    return block.address not in seen or seen[block.address].bytes <= block.requested_bytes


def _apart(blocks: Iterable[Block], others: Sequence[Block]) -> list[Block]:
    """Return the blocks that overlap none of the others."""
    ranges = _Ranges(others)
    return [block for block in blocks if not ranges.overlap(block)]


class _Ranges:
    """The places of blocks, for asking what overlaps them."""

    def __init__(self, blocks: Iterable[Block]) -> None:
        told = [(block.address, block.address + block.allocated_bytes) for block in blocks]
        self._first, self._last = np.array(told, np.uint64).reshape(-1, 2).T

    def overlap(self, block: Block) -> bool:
        """Tell whether a block lies where another does."""
        end = block.address + block.allocated_bytes
        return bool(((self._first < end) & (block.address < self._last)).any())


def _block(event: MemoryEvent) -> Block:
    return Block(event.address, event.requested_bytes, event.allocated_bytes, event.shape, event.dtype != 0)


def _least(row: Owned) -> Block:
    """Return a block for what was seen alone: how much of it is rounding is not told, so the least there can be."""
    return Block(row.address, row.bytes, -(-row.bytes // ALIGNMENT) * ALIGNMENT, row.shape, is_tensor=True)


def _fitting(blocks: Sequence[Block], left_bytes: int | None) -> list[Block]:
    kept = list(blocks)
    while left_bytes is not None and kept and sum(block.allocated_bytes for block in kept) > left_bytes:
        kept.pop()
    return kept
