"""A run that ended out of memory: what was live, requested and releasable, and the largest batch that fits.

If the memory window was open, its account gives all memory by category. Otherwise owners name weights, gradients,
optimizer state and inputs, and library workspaces are the memory that was freed when they were cleared. The rest,
mostly activations, is one sum, because nothing recorded says what it was for.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tbdprof.analysis.memory.account import Account
from tbdprof.analysis.memory.accounting import account, has_events, of_device
from tbdprof.analysis.memory.blocks import lifetimes
from tbdprof.analysis.memory.identities import state_arrays
from tbdprof.analysis.memory.roles import owned
from tbdprof.facts.counters import ALLOCATOR_ALLOCATED, ALLOCATOR_FRAGMENTS, ALLOCATOR_RESERVED, DEVICE_FREE
from tbdprof.facts.recording import Recording, Window
from tbdprof.facts.records import Parameter, Run
from tbdprof.facts.windows import MEMORY, OUT_OF_MEMORY
from tbdprof.hooks import FRAMEWORKS, about
from tbdprof.hooks.about import FailureText
from tbdprof.results.found import Found, because, reasons
from tbdprof.results.memory import CATEGORIES, ESTIMATED, TRIED, PostMortem
from tbdprof.results.reasons import GPU_ONLY, NOT_OUT_OF_MEMORY, NOT_RESERVED

FIXED = ("weights", "weight_gradients", "dynamic")  # the same for every batch size
NOT_SAID = "the allocator does not report how much there is"
NO_BATCH = "the loop did not report how many samples a step has"
NONE_FITS = "no batch that was tried fits"
NO_ROOM = "weights, gradients and optimizer state alone leave no room"
NOT_LEFT = "the memory that was left was not reported"
ON_HOST = "host memory ran out in a run on a GPU: what lay in host memory is not recorded"
_UNITS = {"": 1, "bytes": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}
_HALF_A_DIGIT = "0.005"  # of a number with two decimals
_NO_MEMORY = 2**63  # bytes
_ITEM_BYTES = {"float": 4, "half": 2, "bfloat16": 2, "double": 8, "int32": 4, "int64": 8, "uint8": 1, "bool": 1}


def examine(recording: Recording) -> Found[PostMortem | None]:
    """Return what is known about the end of a run that ran out of memory, or why there is nothing for another run."""
    run = recording.run
    if not run.asked_for:
        return because(NOT_OUT_OF_MEMORY)
    said, on_host = run.asked_for, _is_of_host(run)
    left = {} if on_host else _left(recording)
    live, others, separated = (None, None, False) if on_host else _live(recording, left)
    text = _failure_text(run)
    capacity, free = _of_device(said, text)
    reserved, allocated = left.get(ALLOCATOR_RESERVED), left.get(ALLOCATOR_ALLOCATED)
    found = PostMortem(
        said=said,
        asked_bytes=asked_bytes(said, text),
        live=live,
        others_bytes=others,
        separated=separated,
        live_bytes=None if live is None else sum(live.values()) + (others or 0),
        capacity_bytes=run.device_bytes or capacity,
        free_bytes=left.get(DEVICE_FREE) if free is None else free,
        cache_bytes=None if reserved is None or allocated is None else max(0, reserved - allocated),
        fragments_bytes=left.get(ALLOCATOR_FRAGMENTS),
        batch_size=_batch_size(recording),
        fitting_batch=run.fitting_batch,
        found_by=None if run.fitting_batch is None else TRIED,
        peaks={int(size): took for size, took in run.batch_peaks.items()},
        room_bytes=run.batch_room_bytes,
    )
    # If none of the tried batches fits, no estimate may say that one does.
    was_tried = run.fitting_batch is not None or run.batch_room_bytes is not None
    found = found if was_tried else _with_estimate(found, run)
    return Found(found, _missing(run, found))


def _missing(run: Run, found: PostMortem) -> dict[str, str]:
    """Return the reason for each part that is None."""
    why_not_live = ON_HOST if _is_of_host(run) else "what was live could not be read"
    why_no_cache = GPU_ONLY if run.device == "cpu" else NOT_RESERVED
    parts: dict[str, tuple[object, str]] = {
        "asked": (found.asked_bytes, "the allocator does not say how much was asked for"),
        "live": (found.live, why_not_live),
        "others": (found.others_bytes, why_not_live),
        "capacity": (found.capacity_bytes, GPU_ONLY if run.device == "cpu" else NOT_SAID),
        "free": (found.free_bytes, NOT_LEFT),
        "cache": (found.cache_bytes, why_no_cache),
        "fragments": (found.fragments_bytes, why_no_cache),
        "releasable": (found.releasable_bytes, why_no_cache),
        "room": (found.room_bytes, "no batch was tried"),
        "batch_size": (found.batch_size, NO_BATCH),
        "fitting_batch": (found.fitting_batch, _why_no_batch(found)),
    }
    return reasons(parts)


def asked_bytes(said: str, text: FailureText) -> int | None:
    """Return how many bytes were requested according to an allocator's message, or None if it does not say."""
    match = text.asked and text.asked.search(said)
    if match:
        return _whole(_size(match[1], match[2] or ""))
    match = text.asked_tensor and text.asked_tensor.search(said)
    if match and match[2] in _ITEM_BYTES:
        return _whole(math.prod(float(length) for length in match[1].split(",") if length) * _ITEM_BYTES[match[2]])
    return None


def _failure_text(run: Run) -> FailureText:
    return about(run.framework).failure_text if run.framework in FRAMEWORKS else FailureText()


def _of_device(said: str, text: FailureText) -> tuple[int | None, int | None]:
    """Return the device's total and free memory if the allocator's message has them (to two decimals)."""
    match = text.device and text.device.search(said)
    return (_whole(_size(match[1], match[2])), _whole(_size(match[3], match[4]))) if match else (None, None)


def _size(number: str, unit: str) -> float:
    return float(number) * _UNITS.get(unit.lower(), 1)


def _whole(size: float) -> int | None:
    """Return a size in whole bytes, or None if no memory has so many: the message may be from a stranger."""
    return round(size) if size < _NO_MEMORY else None


def _is_of_host(run: Run) -> bool:
    of_host = _failure_text(run).of_host
    return run.device != "cpu" and of_host is not None and of_host.search(run.asked_for) is not None


def _left(recording: Recording) -> dict[str, int]:
    """Return the counters that were read when the run ended."""
    rows = [window.table("sample") for window in recording.named(OUT_OF_MEMORY)]
    return {recording.strings[int(row["counter"])]: int(row["value"]) for row in rows[-1]} if rows else {}


def _live(recording: Recording, left: Mapping[str, int]) -> tuple[Mapping[str, int] | None, int | None, bool]:
    """Return the live bytes by category, the live bytes without one, and whether the memory window gave all of it."""
    window = _open_window(recording)
    if window is not None:
        return _by_category(recording, of_device(recording, window)), 0, True
    there = [of_device(recording, each) for each in recording.named(OUT_OF_MEMORY)]
    if not there or not len(there[-1].table("allocation")):
        return None, None, False
    return *_by_owner(recording, there[-1], left), False


def _open_window(recording: Recording) -> Window | None:
    """Return the memory window in which the run ended, or None if it ended in another window."""
    others = [window for window in recording.windows if window.name != OUT_OF_MEMORY]
    if not others or others[-1].name != MEMORY or others[-1].state != "cut short" or not has_events(others[-1]):
        return None
    return others[-1]


def _by_category(recording: Recording, window: Window) -> dict[str, int]:
    """Return the categories' bytes when the allocation failed, before the failure itself freed anything."""
    worked = account(recording, _with_last_owners(recording, window))
    row = _row_of_failure(worked, recording.run)
    sizes = {category: sum(int(worked.series(role)[row]) for role in roles) for category, roles in CATEGORIES.items()}
    return sizes | {"rounding": int(worked.levels.rounding_bytes[row])}


def _row_of_failure(worked: Account, run: Run) -> int:
    """Return the last event before the failure.

    If the allocator says how many bytes it had allocated, it is the event after which as many bytes were live.
    Otherwise it is the last successful allocation, and blocks freed between it and the failure count as live.
    """
    levels = worked.levels
    last = int(np.searchsorted(levels.sequence, worked.blocks.start).max(initial=0))
    allocated = _failure_text(run).allocated
    match = allocated and allocated.search(run.asked_for)
    if not match:
        return last
    live = (levels.known_bytes + levels.rounding_bytes)[last:]
    near = np.flatnonzero(np.abs(live - _size(match[1], match[2])) <= _size(_HALF_A_DIGIT, match[2]))
    return last + int(near[0]) if len(near) else last


def _with_last_owners(recording: Recording, window: Window) -> Window:
    """Return a memory window with the owners read after it; the window has none from the failed step."""
    last = [of_device(recording, each).table("owner").copy() for each in recording.named(OUT_OF_MEMORY)][-1:]
    for rows in last:
        rows["sequence"] = 1 + max(
            int(window.table(kind)["sequence"].max(initial=0)) for kind in ("allocation", "owner")
        )
    owners = np.concatenate([window.table("owner"), *last])
    return replace(window, tables={**window.tables, "owner": owners})


def _by_owner(recording: Recording, window: Window, left: Mapping[str, int]) -> tuple[dict[str, int], int]:
    """Return the existing bytes that owners name, by category, and the rest of the allocator's total."""
    blocks, _ = lifetimes(window.table("allocation"))
    named = owned(blocks, window.table("owner"))
    sizes = {
        category: int(blocks.size_bytes[np.isin(named.role, roles)].sum())
        for category, roles in CATEGORIES.items()
        if category != "unknown"
    }
    sizes["rounding"] = int(blocks.rounding_bytes.sum())
    listed = int(blocks.size_bytes.sum()) + sizes["rounding"]
    total = max(listed, left.get(ALLOCATOR_ALLOCATED, listed))
    if recording.run.device != "cpu":
        sizes["workspace"] += total - listed  # library workspaces: they are cleared before the blocks are listed
    return sizes, total - sum(sizes.values())


def _batch_size(recording: Recording) -> int | None:
    """Return the samples per step: as given, otherwise those of the last step."""
    run = recording.run
    if run.batch_size is not None or run.unit != "samples":
        return run.batch_size
    units: list[float] = [float(each) for window in recording.windows for each in window.table("step")["units"][-1:]]
    return int(units[-1]) if units and units[-1] >= 1 else None


def _with_estimate(found: PostMortem, run: Run) -> PostMortem:
    fits = _estimate(found, run)
    return found if fits is None else replace(found, fitting_batch=fits, found_by=ESTIMATED)


def _estimate(found: PostMortem, run: Run) -> int | None:
    """Return the largest batch by proportion: memory that grows with the batch must fit beside the fixed memory.

    The failed step needed even more than was live, so the result is smaller than the batch that failed.
    """
    if not found.batch_size or found.live is None or found.live_bytes is None or found.asked_bytes is None:
        return None
    if found.free_bytes is None:
        return None
    fixed_now = sum(found.live[category] for category in FIXED)
    growing = found.live_bytes + found.asked_bytes - fixed_now
    room = found.live_bytes + (found.cache_bytes or 0) + found.free_bytes - max(fixed_now, _fixed_bytes(run))
    fits = min(int(found.batch_size * room / growing), found.batch_size - 1) if growing > 0 else 0
    return fits if fits >= 1 else None


def _fixed_bytes(run: Run) -> int:
    """Return the bytes of weights, gradients and the known optimizers' state once all of them exist."""
    sizes = {item.name: _bytes(item) for item in run.parameters}
    gradients = sum(_bytes(item) for item in run.parameters if item.trainable)
    states = sum(
        (state_arrays(optimizer) or 0) * sizes.get(name, 0)
        for optimizer in run.optimizers
        for name in optimizer.parameters
    )
    return sum(sizes.values()) + gradients + states


def _bytes(parameter: Parameter) -> int:
    return math.prod(parameter.shape) * parameter.item_bytes


def _why_no_batch(found: PostMortem) -> str:
    if not found.batch_size:
        return NO_BATCH
    if found.room_bytes is not None:
        return NONE_FITS
    if found.live is None or found.asked_bytes is None or found.free_bytes is None:
        return "what was live, asked for and left is not known"
    return NO_ROOM
