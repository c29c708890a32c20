"""Whether torch's own allocator made a storage on the CPU.

Torch says of a storage only whether it can grow. One whose `.numpy()` was called cannot, nor can one that `torch.load`
read, though torch allocated both. What tells them from memory of others is the function that frees it, which torch
keeps beside the address. No call returns it, so it is read from the storage itself (`c10::DataPtr`: the address, the
function, and what the function is called with).
"""

import ctypes
from functools import cache
from itertools import pairwise

import torch

_WORDS = 6  # of a `c10::StorageImpl` that are read; it has more


def is_allocated_by_torch(storage: torch.UntypedStorage) -> bool:
    """Return whether torch's allocator made a storage on the CPU; False, too, where that cannot be known."""
    own = _own_freeing()
    return own is not None and _freeing(storage) == own


@cache
def _own_freeing() -> int | None:
    """Return the address of the function that frees what torch's allocator made, None where it was not found."""
    one, other = (_freeing(torch.UntypedStorage(1, device="cpu")) for _ in range(2))  # type: ignore[no-untyped-call]
    return one if one == other else None


def _freeing(storage: torch.UntypedStorage) -> int | None:
    """Return the address of the function that frees a storage: it stands after the storage's address."""
    words = (ctypes.c_size_t * _WORDS).from_address(storage._cdata)  # noqa: SLF001 - where it lies is nowhere else
    address = storage.data_ptr()
    return next((after for word, after in pairwise(words) if word == address), None)
