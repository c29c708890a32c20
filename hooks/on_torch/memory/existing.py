"""Storages that exist when a memory window begins and ends, with or without an owner."""

import ctypes
import weakref
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise

import torch
from torch._C import DisableTorchFunctionSubclass

from tbdprof.facts.keys import RemarkOn
from tbdprof.facts.records import Role
from tbdprof.hooks.instances import instances_of
from tbdprof.hooks.on_torch.memory import cuda_allocator
from tbdprof.hooks.on_torch.session.events import Existing, Mark, Point, SeenTensor
from tbdprof.hooks.on_torch.session.markers import Markers
from tbdprof.hooks.on_torch.watch.module_calls import uncompiled
from tbdprof.hooks.on_torch.watch.owners import dense_parts, existing_gradients, local_part, owned, storage_of
from tbdprof.hooks.on_torch.watch.watched import Watched

_WORDS = 6  # read of a `c10::StorageImpl`, which has more


class Deaths:
    """Calls a callback when CPU storages are freed, as long as this object is kept."""

    def __init__(self, callback: Callable[[str, int], None]) -> None:
        self._callback = callback
        self._refs: list[weakref.ref[torch.UntypedStorage]] = []

    def watch(self, storage: torch.UntypedStorage, address: int) -> None:
        """Call the callback when this storage is freed."""
        callback = self._callback
        self._refs.append(weakref.ref(storage, lambda _: callback("cpu", address)))


def mark_deaths(markers: Markers, act: Callable[[Callable[[], object]], object]) -> Deaths:
    """Return an object that sets a marker where its CPU storages are freed; `act` makes torch record it in that thread.

    Torch's accounting does not report the free of a block that is older than the accounting. It also does not report
    anything of a thread that it does not follow yet.
    """

    @uncompiled
    def died(device: str, address: int) -> None:
        act(lambda: markers.place(Mark(Point.GONE, device=device, address=address)))

    return Deaths(died)


def blocks(watched: Watched, deaths: Deaths | None = None) -> list[Existing]:
    """Return the existing blocks: all of CUDA, and those of the CPU that Python sees; `deaths` reports their frees."""
    return [*_existing_on_cpu(watched, deaths), *cuda_allocator.blocks()]


def _existing_on_cpu(watched: Watched, deaths: Deaths | None) -> list[Existing]:
    found: dict[int, Existing] = {}
    for tensor in _visible(watched):
        local = local_part(tensor)
        place = None if _is_foreign(tensor) else storage_of(local)
        if place is None or place[0] != "cpu" or place[1] in found:
            continue
        found[place[1]] = Existing(*place, tuple(local.shape))
        if deaths is not None:  # at once, while it is held here: another thread may release it
            deaths.watch(local.untyped_storage(), place[1])
    return list(found.values())


def tensors(watched: Watched) -> list[SeenTensor]:
    """Return the tensors that Python can see now."""
    return [
        SeenTensor(
            device=place[0], address=place[1], bytes=local.numel() * local.element_size(), shape=tuple(local.shape)
        )
        for local in map(local_part, _visible(watched))
        if (place := storage_of(local)) is not None
    ]


def uncounted(watched: Watched) -> dict[str, str]:
    """Return how many bytes of weights and buffers lie in CPU memory that torch did not allocate, if there are any."""
    named = [*watched.parameters(), *watched.buffers()]
    rows = owned(Role.WEIGHT, [(name, each) for name, each in named if _is_foreign(each)])
    reason = (
        f"{sum(row.bytes for row in rows)} bytes of weights and buffers lie in memory that torch did not allocate "
        "(shared, mapped or an array of numpy's): they are not counted"
    )
    return {RemarkOn.FOREIGN_MEMORY: reason} if rows else {}


def _visible(watched: Watched) -> Iterator[torch.Tensor]:
    """Yield every tensor that Python can see, including gradients, and of sparse ones their dense parts."""
    with DisableTorchFunctionSubclass():
        for tensor in _seen(watched):
            yield from dense_parts(tensor)


def _seen(watched: Watched) -> Iterator[torch.Tensor]:
    parameters = watched.parameters()
    yield from (tensor for _, tensor in [*parameters, *watched.buffers()])
    yield from (gradient for _, gradient in existing_gradients(parameters))
    for found in instances_of(torch.Tensor):
        yield found
        gradient = _gradient(found)
        if gradient is not None:
            yield gradient


def _gradient(tensor: torch.Tensor) -> torch.Tensor | None:
    try:
        return tensor.grad if tensor.is_leaf and tensor.requires_grad else None
    except RuntimeError:  # a view whose base was changed: torch lets nobody ask
        return None


def _is_foreign(tensor: torch.Tensor) -> bool:
    """Return whether a CPU tensor lies in a numpy array, in shared memory, or in a mapped file."""
    local = local_part(tensor)
    if local.device.type != "cpu" or storage_of(local) is None:
        return False
    storage = local.untyped_storage()
    return storage.is_shared() or not (storage.resizable() or is_allocated_by_torch(storage))


def is_allocated_by_torch(storage: torch.UntypedStorage) -> bool:
    """Return whether torch's own allocator made a storage on the CPU; False, too, where that cannot be known.

    Torch says of a storage only whether it can grow. One whose `.numpy()` was called cannot, nor can one that
    `torch.load` read, though torch allocated both. They differ from memory of others in the function that frees them.
    No call returns it, so it is read from the storage (`c10::DataPtr`: the address, this function, and its argument).
    """
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
