"""All of a device's memory, and the end of a run that ran out of memory, as plain values."""

from typing import Any

from tbdprof.results.memory import DeviceMemory, PostMortem

Json = dict[str, Any]


def beneath(found: DeviceMemory | None) -> Json:
    """Return the bytes below and beside those that the framework's allocator has in use."""
    return {
        "allocator_cache": None if found is None else found.allocator_cache_bytes,
        "driver_context": None if found is None else found.context_bytes,
        "libraries": None if found is None else found.libraries_bytes,
        "other_processes": None if found is None else found.others_bytes,
    }


def device_memory(found: DeviceMemory | None) -> Json | None:
    """Return the layers of the device's memory, from the bottom, and the memory in use by the driver's figure."""
    if found is None:
        return None
    return {
        "device": found.device,
        "total": found.total_bytes,
        "used": found.used_bytes,
        "layers": [{"name": each.name, "bytes": each.size_bytes, "source": each.source} for each in found.layers],
        "beneath_allocator": None
        if found.beneath is None
        else {
            "bytes": found.beneath.size_bytes,
            "source": found.beneath.source,
        },
        "unexplained": found.unexplained_bytes,
        "explained": found.explained,
        "cache_at_end": found.cache_at_end_bytes,
        "fragments": found.fragments_bytes,
        "private_pools": found.private_bytes,
    }


def post_mortem(found: PostMortem | None) -> Json | None:
    """Return what was live, requested and left when the run ended out of memory."""
    if found is None:
        return None
    return {
        "said": found.said,
        "asked": found.asked_bytes,
        "live": None if found.live is None else dict(found.live),
        "others": found.others_bytes,
        "told_apart": found.separated,
        "capacity": found.capacity_bytes,
        "free": found.free_bytes,
        "cache": found.cache_bytes,
        "releasable": found.releasable_bytes,
        "fragments": found.fragments_bytes,
        "batch_size": found.batch_size,
        "fitting_batch": found.fitting_batch,
        "found_by": found.found_by,
        "tried": [{"batch_size": size, "took": took} for size, took in sorted(found.peaks.items())],
        "room": found.room_bytes,
    }
