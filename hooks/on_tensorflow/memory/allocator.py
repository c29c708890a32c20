"""A device's allocator: its own totals, and how much of a GPU it holds."""

from collections.abc import Mapping

import tensorflow as tf

from tbdprof.facts.counters import ALLOCATOR_ALLOCATED, ALLOCATOR_FRAGMENTS, ALLOCATOR_RESERVED
from tbdprof.hooks.levels import Levels
from tbdprof.hooks.on_tensorflow.memory import snapshot


def levels(device: str) -> Levels:
    """Return what a GPU's allocator holds of the device, in bytes by counter; nothing if it cannot be read."""
    whole = snapshot.take(device) if device != "cpu" else None
    if whole is None:
        return {}
    return {
        ALLOCATOR_RESERVED: whole.reserved_bytes,
        ALLOCATOR_ALLOCATED: whole.allocated_bytes,
        ALLOCATOR_FRAGMENTS: whole.fragments_bytes,
    }


def allocated_bytes(device: str) -> int | None:
    """Return the allocator's own current total, or None if it keeps none."""
    return _information(device).get("current")


def peak_bytes(device: str) -> int | None:
    """Return the allocator's own peak over the whole run, or None if it keeps none."""
    return _information(device).get("peak")


def _information(device: str) -> Mapping[str, int]:
    kind, _, number = device.partition(":")
    place = f"{'GPU' if kind == 'cuda' else 'CPU'}:{number or 0}"
    try:
        reported: Mapping[str, int] = tf.config.experimental.get_memory_info(place)
    except ValueError:  # the device's allocator does not count
        return {}
    return reported if reported.get("peak") else {}
