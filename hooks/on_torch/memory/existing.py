"""Which storages exist when a memory window begins and ends, whoever owns them."""

import gc
import weakref
from collections.abc import Callable, Iterator

import torch
from torch._C import DisableTorchFunctionSubclass

from tbdprof.facts.records import Role
from tbdprof.hooks.on_torch.memory import cuda_allocator
from tbdprof.hooks.on_torch.session.events import Existing, Mark, Point, SeenTensor
from tbdprof.hooks.on_torch.session.markers import Markers
from tbdprof.hooks.on_torch.watch.owners import existing_gradients, local_part, owned, storage_of
from tbdprof.hooks.on_torch.watch.watched import Watched


class Deaths:
    """Tells a callback when CPU storages die, as long as this is kept."""

    def __init__(self, callback: Callable[[str, int], None]) -> None:
        self._callback = callback
        self._refs: list[weakref.ref[torch.UntypedStorage]] = []

    def tell(self, storage: torch.UntypedStorage, address: int) -> None:
        """Have the death of a storage at an address told."""
        callback = self._callback
        self._refs.append(weakref.ref(storage, lambda _: callback("cpu", address)))


def mark_deaths(markers: Markers, follow: Callable[[], object]) -> Deaths:
    """Return what marks where CPU blocks die that are told to it, after calling `follow` in the thread.

    Torch's account says nothing of the end of a block that is older than it, nor of what a thread does that it does
    not follow yet.
    """

    def died(device: str, address: int) -> None:
        follow()
        markers.place(Mark(Point.GONE, device=device, address=address))

    return Deaths(died)


def blocks(watched: Watched, deaths: Deaths | None = None) -> list[Existing]:
    """Return the blocks there now: on the CPU what Python can see, with its death told, and all of CUDA."""
    return [*_existing_on_cpu(watched, deaths), *cuda_allocator.blocks()]


def _existing_on_cpu(watched: Watched, deaths: Deaths | None) -> list[Existing]:
    found: dict[int, Existing] = {}
    for tensor in _visible(watched):
        local = local_part(tensor)
        place = None if _is_foreign(tensor) else storage_of(local)
        if place is None or place[0] != "cpu" or place[1] in found:
            continue
        found[place[1]] = Existing(*place, tuple(local.shape))
        if deaths is not None:  # at once, while it is held here: another thread may let go of it
            deaths.tell(local.untyped_storage(), place[1])
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
    """Return, where weights or buffers lie in CPU memory that torch did not allocate, how many bytes of them."""
    named = [*watched.parameters(), *watched.buffers()]
    rows = owned(Role.WEIGHT, [(name, each) for name, each in named if _is_foreign(each)])
    told = (
        f"{sum(row.bytes for row in rows)} bytes of weights and buffers lie in memory that torch did not allocate "
        "(shared, mapped or an array of numpy's): they are not counted"
    )
    return {"foreign_memory": told} if rows else {}


def _visible(watched: Watched) -> Iterator[torch.Tensor]:
    """Yield every tensor that Python can see, gradients among them."""
    parameters = watched.parameters()
    with DisableTorchFunctionSubclass():
        yield from (tensor for _, tensor in [*parameters, *watched.buffers()])
        yield from (gradient for _, gradient in existing_gradients(parameters))
        for found in gc.get_objects():
            # Asking a stranger for more than its type may run code of the user's.
            if not issubclass(type(found), torch.Tensor):
                continue
            yield found
            if found.is_leaf and found.requires_grad and found.grad is not None:
                yield found.grad


def _is_foreign(tensor: torch.Tensor) -> bool:
    """Return whether a CPU tensor lies in an array of numpy's, shared memory, or a file's pages."""
    local = local_part(tensor)
    if local.device.type != "cpu" or storage_of(local) is None:
        return False
    storage = local.untyped_storage()
    return not storage.resizable() or storage.is_shared()
