"""Which storages torch's models and optimizers own, and which storages exist at all."""

import gc
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import torch
from torch._C import DisableTorchFunctionSubclass
from torch.utils._pytree import tree_leaves

from tbdprof.facts.records import Role
from tbdprof.hooks.naming import prefixes
from tbdprof.hooks.on_torch.memory import cuda_allocator
from tbdprof.hooks.on_torch.session.arguments import device_text
from tbdprof.hooks.on_torch.session.events import Existing, Owned, SeenTensor

Named = Sequence[tuple[str, torch.Tensor]]


class Deaths:
    """Tells a callback when CPU storages die, as long as this is kept."""

    def __init__(self, callback: Callable[[str, int], None]) -> None:
        self._callback = callback
        self._refs: list[weakref.ref[torch.UntypedStorage]] = []

    def tell(self, storage: torch.UntypedStorage, address: int) -> None:
        """Have the death of a storage at an address told."""
        callback = self._callback
        self._refs.append(weakref.ref(storage, lambda _: callback("cpu", address)))


class Watched:
    """The models and optimizers whose memory is named, held weakly.

    One model's names stand alone; with several, each name begins with its model's class in lower
    case, numbered where a class comes twice: `generator.`, `critic0.`, `critic1.`.
    """

    def __init__(self) -> None:
        self._models: list[weakref.ref[torch.nn.Module]] = []
        self._optimizers: list[weakref.ref[torch.optim.Optimizer]] = []
        self._inputs: list[weakref.ref[torch.Tensor]] = []

    def add_model(self, model: torch.nn.Module) -> bool:
        """Watch a model, in place of its parts; return false where it is watched already."""
        known = self.models()
        if any(model is part for root in known for part in root.modules()):
            return False
        parts = list(model.modules())
        roots = [root for root in known if not any(root is part for part in parts)]
        self._models = [weakref.ref(root) for root in [*roots, model]]
        return True

    def add_optimizer(self, optimizer: torch.optim.Optimizer) -> bool:
        """Watch an optimizer; return false where it is watched already."""
        if self.knows(optimizer):
            return False
        self._optimizers.append(weakref.ref(optimizer))
        return True

    def knows(self, optimizer: torch.optim.Optimizer) -> bool:
        """Return whether an optimizer is watched."""
        return any(optimizer is known for known in self.optimizers())

    def add_inputs(self, inputs: Sequence[object]) -> None:
        """Watch the tensors in these, which hold mini-batches from step to step."""
        tensors = (leaf for leaf in tree_leaves(list(inputs)) if isinstance(leaf, torch.Tensor))
        self._inputs += [weakref.ref(tensor) for tensor in tensors]

    def inputs(self) -> list[torch.Tensor]:
        """Return the kept inputs that are still there."""
        return [tensor for ref in self._inputs if (tensor := ref()) is not None]

    def models(self) -> list[torch.nn.Module]:
        """Return the models that are still there."""
        return [model for ref in self._models if (model := ref()) is not None]

    def optimizers(self) -> list[torch.optim.Optimizer]:
        """Return the optimizers that are still there."""
        return [optimizer for ref in self._optimizers if (optimizer := ref()) is not None]

    def prefixes(self) -> list[tuple[str, torch.nn.Module]]:
        """Return each model with what its names begin with."""
        return prefixes(self.models())

    def parameters(self) -> Named:
        """Return the models' parameters, each once, and those that only an optimizer knows."""
        named: list[tuple[str, torch.Tensor]] = [
            (prefix + _plain(name), parameter)
            for prefix, model in self.prefixes()
            for name, parameter in model.named_parameters()
        ]
        known = {id(parameter) for _, parameter in named}
        for parameter in _all_parameters(self.optimizers()):
            if id(parameter) not in known:
                known.add(id(parameter))
                named.append((f"parameter{len(named)}", parameter))
        return named

    def buffers(self) -> Named:
        """Return the models' buffers, each once."""
        return [
            (prefix + _plain(name), buffer)
            for prefix, model in self.prefixes()
            for name, buffer in model.named_buffers()
        ]

    def device(self) -> str | None:
        """Return where the first of the parameters is, None where there is none."""
        places = (parameter.device for _, parameter in self.parameters())
        return next((device_text(place) for place in places if place.type != "meta"), None)

    def is_updated_by(self, optimizer: torch.optim.Optimizer) -> bool:
        """Return whether an optimizer updates anything of the known models."""
        known = {id(parameter) for model in self.models() for parameter in model.parameters()}
        return any(id(parameter) in known for parameter in _all_parameters([optimizer]))

    def is_complete(self) -> bool:
        """Return whether all that the known optimizers update belongs to known models."""
        known = {id(parameter) for model in self.models() for parameter in model.parameters()}
        optimizers = self.optimizers()
        return bool(optimizers) and all(id(p) in known for p in _all_parameters(optimizers))


def everything(watched: Watched) -> list[Owned]:
    """Return the storages of weights, buffers, gradients, optimizer state and kept inputs."""
    parameters = watched.parameters()
    return [
        *owned(Role.WEIGHT, parameters),
        *owned(Role.BUFFER, watched.buffers()),
        *gradients(parameters),
        *(row for each in watched.optimizers() for row in state(each, parameters)),
        *inputs(watched.inputs()),
    ]


def owned(role: Role, named: Iterable[tuple[str, torch.Tensor]]) -> list[Owned]:
    """Return the tensors' storages, each once, under the first name it has."""
    rows: dict[tuple[str, int], Owned] = {}
    with DisableTorchFunctionSubclass():
        for name, tensor in named:
            local = local_part(tensor)
            place = _storage(local)
            if place is not None:
                row = Owned(*place, role=role, name=name, shape=tuple(local.shape))
                rows.setdefault((row.device, row.address), row)
    return list(rows.values())


def gradients(parameters: Named) -> list[Owned]:
    """Return the gradients that exist, under their parameters' names."""
    return owned(Role.GRADIENT, _gradients(parameters))


def gradients_of(optimizer: torch.optim.Optimizer, parameters: Named) -> list[Owned]:
    """Return the gradients an optimizer is about to read."""
    read = {id(parameter) for parameter in _all_parameters([optimizer])}
    return gradients([(name, each) for name, each in parameters if id(each) in read])


def state(optimizer: torch.optim.Optimizer, parameters: Named) -> list[Owned]:
    """Return an optimizer's state, each tensor named "parameter/slot"."""
    names = {id(parameter): name for name, parameter in parameters}
    return owned(
        Role.OPTIMIZER_STATE,
        (
            (f"{names.get(id(parameter), 'parameter')}/{slot}", tensor)
            for parameter, slots in list(optimizer.state.items())  # another thread may add to it
            if isinstance(slots, Mapping)
            for slot, tensor in _slots(slots)
        ),
    )


def inputs(arguments: object) -> list[Owned]:
    """Return the tensors among a call's arguments."""
    tensors = [leaf for leaf in tree_leaves(arguments) if isinstance(leaf, torch.Tensor)]
    return owned(Role.INPUT, ((f"input{i}", tensor) for i, tensor in enumerate(tensors)))


def existing(watched: Watched, deaths: Deaths | None = None) -> list[Existing]:
    """Return the blocks there now: on the CPU what Python can see, with its death told, and all of CUDA."""
    return [*_existing_on_cpu(watched, deaths), *cuda_allocator.blocks()]


def seen(watched: Watched) -> list[SeenTensor]:
    """Return the tensors that Python can see now."""
    return [
        SeenTensor(
            device=place[0], address=place[1], bytes=local.numel() * local.element_size(), shape=tuple(local.shape)
        )
        for local in map(local_part, _visible(watched))
        if (place := _storage(local)) is not None
    ]


def _existing_on_cpu(watched: Watched, deaths: Deaths | None) -> list[Existing]:
    found: dict[int, Existing] = {}
    for tensor in _visible(watched):
        local = local_part(tensor)
        place = None if _is_foreign(tensor) else _storage(local)
        if place is None or place[0] != "cpu" or place[1] in found:
            continue
        found[place[1]] = Existing(*place, tuple(local.shape))
        if deaths is not None:  # at once, while it is held here: another thread may let go of it
            deaths.tell(local.untyped_storage(), place[1])
    return list(found.values())


def uncounted(watched: Watched) -> dict[str, str]:
    """Return, where weights or buffers lie in CPU memory that torch did not allocate, how many bytes of them."""
    named = [*watched.parameters(), *watched.buffers()]
    rows = owned(Role.WEIGHT, [(name, each) for name, each in named if _is_foreign(each)])
    told = (
        f"{sum(row.bytes for row in rows)} bytes of weights and buffers lie in memory that torch did not allocate "
        "(shared, mapped or an array of numpy's): they are not counted"
    )
    return {"foreign_memory": told} if rows else {}


def _plain(name: str) -> str:
    return name.replace("_orig_mod.", "")  # torch.compile's wrapper


def _all_parameters(optimizers: Iterable[torch.optim.Optimizer]) -> Iterator[torch.Tensor]:
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            yield from group["params"]


def _gradients(named: Named) -> Iterator[tuple[str, torch.Tensor]]:
    for name, parameter in named:
        gradient = parameter.grad if parameter.is_leaf else None
        if gradient is not None:
            yield name, gradient


def _slots(slots: Mapping[object, object]) -> Iterator[tuple[object, torch.Tensor]]:
    for slot, value in list(slots.items()):
        if isinstance(value, torch.Tensor):
            yield slot, value
            continue
        for i, leaf in enumerate(tree_leaves(value)):
            if isinstance(leaf, torch.Tensor):
                yield f"{slot}.{i}", leaf


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """Return a distributed tensor's part on this machine, or the tensor itself."""
    local = getattr(tensor, "_local_tensor", tensor)
    return local if isinstance(local, torch.Tensor) else tensor


def _storage(tensor: torch.Tensor) -> tuple[str, int, int] | None:
    """Return device, address and bytes of a tensor's storage; None where it has none of its own."""
    try:
        storage = tensor.untyped_storage()
        address = 0 if storage.device.type == "meta" else storage.data_ptr()
    except (RuntimeError, NotImplementedError, ValueError):
        return None  # sparse, fake and uninitialized tensors
    return (device_text(storage.device), address, storage.nbytes()) if address else None


def _is_foreign(tensor: torch.Tensor) -> bool:
    """Return whether a CPU tensor lies in an array of numpy's, shared memory, or a file's pages."""
    local = local_part(tensor)
    if local.device.type != "cpu" or _storage(local) is None:
        return False
    storage = local.untyped_storage()
    return not storage.resizable() or storage.is_shared()


def _visible(watched: Watched) -> Iterator[torch.Tensor]:
    """Yield every tensor that Python can see, gradients among them."""
    parameters = watched.parameters()
    with DisableTorchFunctionSubclass():
        yield from (tensor for _, tensor in [*parameters, *watched.buffers()])
        yield from (gradient for _, gradient in _gradients(parameters))
        for found in gc.get_objects():
            # Asking a stranger for more than its type may run code of the user's.
            if not issubclass(type(found), torch.Tensor):
                continue
            yield found
            if found.is_leaf and found.requires_grad and found.grad is not None:
                yield found.grad
