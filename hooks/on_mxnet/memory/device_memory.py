"""How much of a GPU MXNet's pool holds, and how much of that is in use."""

from contextlib import suppress

import mxnet as mx

from tbdprof.collect.gpu import cuda_driver
from tbdprof.errors import UnavailableError
from tbdprof.facts.counters import (
    ALLOCATOR_ALLOCATED,
    ALLOCATOR_FRAGMENTS,
    ALLOCATOR_PRIVATE,
    ALLOCATOR_RESERVED,
    DEVICE_FREE,
)
from tbdprof.hooks.levels import Levels
from tbdprof.hooks.on_mxnet.memory.allocator import Allocator
from tbdprof.hooks.on_mxnet.session import layout

_UNKNOWN_POOL = "this MXNet build lays its memory pool out differently from 1.9.1, or the pool is of an unknown kind"
_UNSOUND = "MXNet's pool says that it holds {} bytes, less than the {} that are in use"


def read(allocator: Allocator, device: str) -> tuple[Levels, str | None]:
    """Return a device's levels now, while no operator runs, and why the pool's are not known, if they are not.

    Every block of the pool is one whole block of CUDA's. So there are no fragments and no private pools.
    """
    if device == "cpu":
        return {}, None
    index = cuda_driver.index_of(device)
    number = layout.device_number(layout.GPU, index)
    found: dict[str, int] = {}
    with suppress(mx.base.MXNetError):  # raised if the device no longer answers
        found[DEVICE_FREE] = int(mx.context.gpu_memory_info(index)[0])
    if number not in allocator.levels:
        return found, None
    try:
        held = held_bytes(allocator, number)
    except UnavailableError as error:
        return found, str(error)
    return found | {
        ALLOCATOR_RESERVED: held,
        ALLOCATOR_ALLOCATED: allocator.levels[number].now_bytes,
        ALLOCATOR_FRAGMENTS: 0,
        ALLOCATOR_PRIVATE: 0,
    }, None


def held_bytes(allocator: Allocator, number: int) -> int:
    """Return how many bytes MXNet holds of a device with allocations, used or not.

    Raise UnavailableError if its pool does not report it.
    """
    in_use, pool = allocator.levels[number].now_bytes, allocator.pool(number)
    if pool is None:
        raise UnavailableError(_UNKNOWN_POOL)
    held = pool.held_bytes()
    if held is not None and held < in_use:
        raise UnavailableError(_UNSOUND.format(held, in_use))
    return in_use if held is None else held
