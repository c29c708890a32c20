"""The storages that torch's models and optimizers own, and what the inputs of modules say of the batch."""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch._C import DisableTorchFunctionSubclass
from torch.nn.utils.rnn import PackedSequence
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from torch.utils._pytree import tree_leaves

from tbdprof.facts.batches import Layout
from tbdprof.facts.records import Role
from tbdprof.hooks.on_torch.devices import device_text
from tbdprof.hooks.on_torch.session.events import Owned, Weight
from tbdprof.hooks.on_torch.watch.watched import Named, Watched, all_parameters

_PARTS = {
    torch.sparse_coo: ("_values", "_indices"),
    **dict.fromkeys((torch.sparse_csr, torch.sparse_bsr), ("values", "crow_indices", "col_indices")),
    **dict.fromkeys((torch.sparse_csc, torch.sparse_bsc), ("values", "ccol_indices", "row_indices")),
}
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_NUMBERS = (int, float, str)
Rows = dict[Role, dict[str, Owned]]
_FIRST = ("input_ids",)  # inputs given by name that are the first one
# Dimensions of an input without a batch, by the types of layers (torch's documentation: "unbatched").
_UNBATCHED = (
    ((torch.nn.Linear, torch.nn.RNNCellBase), 1),
    ((torch.nn.Conv1d, torch.nn.ConvTranspose1d), 2),
    ((torch.nn.Conv2d, torch.nn.ConvTranspose2d), 3),
    ((torch.nn.Conv3d, torch.nn.ConvTranspose3d), 4),
)


def everything(watched: Watched) -> list[Owned]:
    """Return the storages of weights, buffers, gradients, optimizer state and kept inputs."""
    parameters, rows = watched.parameters(), watched.rows
    return [
        *owned(Role.WEIGHT, parameters, rows),
        *owned(Role.BUFFER, watched.buffers(), rows),
        *gradients(parameters, rows),
        *(row for each in watched.optimizers() for row in state(each, parameters, rows)),
        *inputs(watched.inputs()),
    ]


def owned(role: Role, named: Iterable[tuple[str, torch.Tensor]], rows: Rows | None = None) -> list[Owned]:
    """Return the tensors' storages, each once, under the first name found.

    `rows` are those read before: one that still holds is returned again, because that is cheaper than a new one.
    """
    found: dict[tuple[str, int], Owned] = {}
    for row in _each(role, named, {} if rows is None else rows):
        found.setdefault((row.device, row.address), row)
    return list(found.values())


def _each(role: Role, named: Iterable[tuple[str, torch.Tensor]], rows: Rows) -> Iterator[Owned]:
    known = rows.setdefault(role, {})
    with DisableTorchFunctionSubclass():
        for name, tensor in _dense(named):
            local = local_part(tensor)
            row = known.get(name)
            if row is not None and _is_same(row, local):
                yield row
            elif (place := storage_of(local)) is not None:
                known[name] = row = Owned(*place, role=role, name=name, shape=tuple(local.shape))
                yield row


def _is_same(row: Owned, tensor: torch.Tensor) -> bool:
    """Return whether a tensor has the storage and shape of a row."""
    if row.device != "cpu" or not tensor.is_cpu or row.shape != tensor.shape:
        return False
    try:
        storage = tensor.untyped_storage()
        return row.address == storage.data_ptr() and row.bytes == storage.nbytes()
    except (RuntimeError, NotImplementedError, ValueError):
        return False


def _dense(named: Iterable[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield each tensor, or the dense parts of one made of several, named "tensor/values", "tensor/indices" and so on.

    Of several tensors are made a sparse one, and one of a class that keeps its values in others, as quantized ones do.
    """
    for name, tensor in named:
        of = _PARTS.get(tensor.layout)
        if of is not None:
            yield from ((f"{name}/{part.strip('_')}", getattr(tensor, part)()) for part in of)
        elif inner := _wrapped(tensor):
            yield from _dense((f"{name}/{part}", each) for part, each in inner)
        else:
            yield name, tensor


def _wrapped(tensor: torch.Tensor) -> Named:
    """Return the tensors in which one of a wrapping class keeps its values, by their names there; none for all others.

    A distributed tensor's part on this machine may be such a one, too.
    """
    if type(tensor) in _PLAIN or not is_traceable_wrapper_subclass(inner := local_part(tensor)):
        return ()
    try:
        return [(name, getattr(inner, name)) for name in inner.__tensor_flatten__()[0]]
    except Exception:  # noqa: BLE001 - a class of the user's own, which may raise anything
        return ()


def dense_parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Return the dense parts of a tensor that is made of several, or the tensor itself."""
    return [part for _, part in _dense([("", tensor)])]


def weights(watched: Watched) -> dict[int, Weight]:
    """Return the models' weights by the address of their storage, without those that several layers share."""
    found: dict[int, Weight | None] = {}
    for row in _each(Role.WEIGHT, watched.parameters(), watched.rows):
        layer = row.name.rpartition(".")[0]
        known = found.get(row.address)
        is_shared = row.address in found and (known is None or known.layer != layer)
        found[row.address] = None if is_shared or not layer else Weight(layer, math.prod(row.shape))
    return {address: weight for address, weight in found.items() if weight is not None}


def gradients(parameters: Named, rows: Rows | None = None) -> list[Owned]:
    """Return the gradients that exist, under their parameters' names."""
    return owned(Role.GRADIENT, existing_gradients(parameters), rows)


def gradients_of(optimizer: torch.optim.Optimizer, watched: Watched) -> list[Owned]:
    """Return the gradients that an optimizer is about to read."""
    read = {id(parameter) for parameter in all_parameters([optimizer])}
    return gradients([(name, each) for name, each in watched.parameters() if id(each) in read], watched.rows)


def state_of(optimizer: torch.optim.Optimizer, watched: Watched) -> list[Owned]:
    """Return the state that an optimizer has updated."""
    return state(optimizer, watched.parameters(), watched.rows)


def state(optimizer: torch.optim.Optimizer, parameters: Named, rows: Rows | None = None) -> list[Owned]:
    """Return an optimizer's state, each tensor named "parameter/slot"."""
    names = {id(parameter): name for name, parameter in parameters}
    return owned(
        Role.OPTIMIZER_STATE,
        (
            (f"{parameter if isinstance(parameter, str) else names.get(id(parameter), 'parameter')}/{slot}", tensor)
            for parameter, slots in list(optimizer.state.items())  # another thread may add to it
            if isinstance(slots, Mapping)
            for slot, tensor in _slots(slots)
        ),
        rows,
    )


def inputs(arguments: object) -> list[Owned]:
    """Return the tensors among a call's arguments."""
    tensors = [leaf for leaf in tree_leaves(arguments) if isinstance(leaf, torch.Tensor)]
    return owned(Role.INPUT, ((f"input{i}", tensor) for i, tensor in enumerate(tensors)))


def first_tensor(args: tuple[object, ...], named: object) -> torch.Tensor | None:
    """Return the first tensor of a call's arguments; of those given by name the token ids come first."""
    by_name = named if isinstance(named, Mapping) else {}
    first = [by_name[name] for name in _FIRST if name in by_name]
    leaves = tree_leaves([*args, *first, *by_name.values()])
    return next((leaf for leaf in leaves if isinstance(leaf, torch.Tensor)), None)


def times_mapped(tensor: torch.Tensor) -> int:
    """Return how many samples of its shape a tensor stands for within `torch.func.vmap`: 1 outside."""
    inner, times = torch._C._functorch, 1  # noqa: SLF001
    while inner.is_functorch_wrapped_tensor(tensor):
        within = inner.get_unwrapped(tensor)
        if inner.is_batchedtensor(tensor):
            times *= int(within.shape[inner.maybe_get_bdim(tensor)])
        tensor = within
    return times


def has_computed(args: tuple[object, ...], named: object) -> bool:
    """Return whether a call is given something that was computed in training: its gradient is to be known."""
    leaves = tree_leaves([*args, *(named.values() if isinstance(named, Mapping) else ())])
    return any(isinstance(leaf, torch.Tensor) and leaf.grad_fn is not None for leaf in leaves)


def tells_layout(module: torch.nn.Module) -> bool:
    """Return whether a module of this type says where the batch lies."""
    return _batch_first(module) is not None or any(isinstance(module, types) for types, _ in _UNBATCHED)


def layout_of(module: torch.nn.Module, args: tuple[object, ...]) -> Layout | None:
    """Return where the batch of a module's input lies, or None if it does not say."""
    packed = args[0] if args else None
    if isinstance(packed, PackedSequence):
        return Layout(type(module).__name__, len(packed.batch_sizes), int(packed.batch_sizes[0]))
    first = first_tensor(args, {})
    if first is None or not first.dim():
        return None
    name, is_batch_first = type(module).__name__, _batch_first(module)
    if is_batch_first is not None:
        samples = 1 if first.dim() < 3 else int(first.shape[0 if is_batch_first else 1])
        return Layout(name, int(first.shape[0]), samples)
    for types, dimensions in _UNBATCHED:
        if isinstance(module, types) and first.dim() == dimensions:
            return Layout(name, int(first.shape[0]), 1, dimensions)
        if isinstance(module, types) and not isinstance(module, torch.nn.Linear):  # which takes any dimensions
            return Layout(name, int(first.shape[0]), int(first.shape[0]))
    return None


def _batch_first(module: torch.nn.Module) -> bool | None:
    found: Any = vars(module).get("batch_first")
    return found if isinstance(found, bool) else None


def existing_gradients(named: Named) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the gradients that exist, each with its parameter's name."""
    for name, parameter in named:
        gradient = parameter.grad if parameter.is_leaf else None
        if gradient is not None:
            yield name, gradient


def _slots(slots: Mapping[object, object]) -> Iterator[tuple[object, torch.Tensor]]:
    for slot, value in list(slots.items()):
        if isinstance(value, torch.Tensor):
            yield slot, value
            continue
        if value is None or isinstance(value, _NUMBERS):
            continue
        for i, leaf in enumerate(tree_leaves(value)):
            if isinstance(leaf, torch.Tensor):
                yield f"{slot}.{i}", leaf


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """Return a distributed tensor's part on this machine, or the tensor itself."""
    if type(tensor) in _PLAIN:  # which has no such attribute, and takes long to say so
        return tensor
    local = getattr(tensor, "_local_tensor", tensor)
    return local if isinstance(local, torch.Tensor) else tensor


def storage_of(tensor: torch.Tensor) -> tuple[str, int, int] | None:
    """Return device, address and bytes of a tensor's storage, or None if it has no storage of its own."""
    try:
        storage = tensor.untyped_storage()
        address = 0 if storage.device.type == "meta" else storage.data_ptr()
    except (RuntimeError, NotImplementedError, ValueError):
        return None  # sparse, fake and uninitialized tensors
    return (device_text(storage.device), address, storage.nbytes()) if address else None
