"""The figures of torch's CUDA allocator: its blocks, the memory it holds, and what it keeps for captured graphs.

The formats are those of `torch.cuda.memory_snapshot` and `torch.cuda.memory_stats`, as documented. A block's size is
the request after the allocator's rounding. The snapshot gives the requested size of live blocks; the events do not.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch

from tbdprof.facts.counters import (
    ALLOCATOR_ALLOCATED,
    ALLOCATOR_FRAGMENTS,
    ALLOCATOR_PRIVATE,
    ALLOCATOR_RESERVED,
    DEVICE_FREE,
)
from tbdprof.facts.keys import ReasonFor, RemarkOn
from tbdprof.hooks.levels import Levels
from tbdprof.hooks.on_torch.devices import cuda_is_on
from tbdprof.hooks.on_torch.session.events import Existing

_ROUNDED_TO_BYTES = 512
_UNSPLIT_BYTES = 1 << 20  # largest rest that it does not split off a larger block
_SHARED_POOL = (0, 0)
_FOLLOWED = "native"
_STATISTICS = {
    ALLOCATOR_RESERVED: "reserved_bytes.all.current",
    ALLOCATOR_ALLOCATED: "allocated_bytes.all.current",
    ALLOCATOR_FRAGMENTS: "inactive_split_bytes.all.current",
}
ROUNDING = (
    "known of blocks that were there when the memory window began, and of owned ones: of others torch reports only the "
    "rounded block, and the rounding is within their category"
)


def blocks() -> list[Existing]:
    """Return the blocks in use on every device."""
    return [
        Existing(
            f"cuda:{segment['device']}",
            block["address"],
            block["size"],
            requested_bytes=min(block.get("requested_size", -1), block["size"]),
        )
        for segment in _segments()
        for block in segment["blocks"]
        if block["state"] == "active_allocated"
    ]


def uncounted(existing: Sequence[Existing], device: str | None) -> dict[str, str]:
    """Return by how much the list of a device's blocks differs from its allocator's count, if they differ."""
    held: dict[str, int] = defaultdict(int, {device: 0} if device not in (None, "cpu") and cuda_is_on() else {})
    for block in existing:
        if block.device != "cpu":
            held[block.device] += block.bytes
    counted = {device: torch.cuda.memory_allocated(device) for device in held}
    wrong = [
        f"{device} counts {counted[device]} bytes in use and lists {listed}"
        for device, listed in held.items()
        if counted[device] != listed
    ]
    return {RemarkOn.EXISTING_BLOCKS: f"when the memory window began {'; '.join(wrong)}"} if wrong else {}


def unfollowed(device: str | None) -> dict[str, str]:
    """Return why allocations are not reported, if they are not: the profiler follows only one of torch's allocators."""
    if device in (None, "cpu") or not cuda_is_on():
        return {}
    backend = torch.cuda.get_allocator_backend()
    if backend == _FOLLOWED:
        return {}
    return {
        ReasonFor.MEMORY: f"torch's profiler does not follow the allocator {backend}: "
        "leave `backend` out of PYTORCH_ALLOC_CONF"
    }


def levels(device: str | None) -> Levels:
    """Return what the allocator holds of a device and what the driver has free; nothing if CUDA is off."""
    if device in (None, "cpu") or not cuda_is_on():
        return {}
    statistics = torch.cuda.memory_stats(device)
    found = {counter: int(statistics[name]) for counter, name in _STATISTICS.items() if name in statistics}
    with suppress(RuntimeError):  # raised if the device no longer answers
        found[DEVICE_FREE] = int(torch.cuda.mem_get_info(device)[0])
    return found


def pools(device: str | None) -> tuple[Levels, dict[str, str]]:
    """Return the bytes reserved for private pools, and remarks on what the allocator's levels alone do not show.

    This needs a list of all blocks, which takes too long to make at every step.
    """
    if device in (None, "cpu") or not cuda_is_on():
        return {}, {}
    remarks: dict[str, str] = {ReasonFor.ROUNDING: ROUNDING}
    mine = _segments_of(device)
    private = sum(each["total_size"] for each in mine if _is_private(each))
    expandable = sum(each["total_size"] for each in mine if each.get("is_expandable"))
    if private:
        remarks[RemarkOn.PRIVATE_POOLS] = (
            f"{private} reserved bytes belong to captured graphs or other pools of their own: what a graph that is "
            "replayed does in them is not reported"
        )
    if expandable:
        remarks[RemarkOn.EXPANDABLE_SEGMENTS] = (
            f"{expandable} reserved bytes are in expandable segments: only mapped memory counts"
        )
    return {ALLOCATOR_PRIVATE: private}, remarks


def _segments() -> Sequence[Mapping[str, Any]]:
    """Return the segments that the allocator got from the driver; allocators other than torch's own report none."""
    if not cuda_is_on():
        return []
    try:
        segments: Sequence[Mapping[str, Any]] = torch.cuda.memory_snapshot(include_traces=False)  # type: ignore[no-untyped-call]
    except RuntimeError:
        return []
    return segments


def _segments_of(device: str | None) -> Sequence[Mapping[str, Any]]:
    return [each for each in _segments() if f"cuda:{each['device']}" == device]


def _is_private(segment: Mapping[str, Any]) -> bool:
    return tuple(segment.get("segment_pool_id", _SHARED_POOL)) != _SHARED_POOL


def is_whole(asked_bytes: int, block_bytes: int, device: str) -> bool:
    """Return whether a request of so many bytes can give this block, after the allocator's rounding."""
    spare = block_bytes - asked_bytes
    if device == "cpu":
        return spare == 0
    unsplit = _UNSPLIT_BYTES if block_bytes > _UNSPLIT_BYTES else 0
    return 0 <= spare < unsplit + _ROUNDED_TO_BYTES
