"""The storages that MXNet's models and trainers own, and the arrays that exist."""

import gc
import json
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import mxnet as mx
from mxnet.gluon import Block, Constant, Parameter, Trainer

from tbdprof.facts.records import Role
from tbdprof.hooks.naming import prefixes
from tbdprof.hooks.on_mxnet.session import layout

Named = Sequence[tuple[str, Parameter]]

# The names of the state arrays that MXNet's optimizers keep for a parameter, in their order.
_SLOTS = {"SGD": ("momentum",), "NAG": ("momentum",), "Adam": ("mean", "variance"), "RMSProp": ("n", "g", "delta")}


class Owned(NamedTuple):
    """A storage and its role."""

    device: int
    address: int
    size_bytes: int
    role: Role
    name: str
    shape: str  # JSON


class Watched:
    """The models and trainers whose memory is named, held by weak references.

    With one model, names have no prefix. With several, each name begins with its model's class in lower case, and with
    a number if a class occurs twice: `generator.`, `critic0.`, `critic1.`.
    """

    def __init__(self) -> None:
        self._models: list[weakref.ref[Block]] = []
        self._trainers: list[weakref.ref[Trainer]] = []
        self._inputs: list[mx.nd.NDArray] = []

    def add_model(self, model: Block) -> bool:
        """Watch a model, and no longer its parts on their own; return false if it is watched already."""
        known = self.models()
        if any(model is part for root in known for part in parts(root)):
            return False
        inside = {id(part) for part in parts(model)}
        self._models = [weakref.ref(root) for root in (*(root for root in known if id(root) not in inside), model)]
        return True

    def add_trainer(self, trainer: Trainer) -> bool:
        """Watch a trainer; return false if it is watched already."""
        if any(trainer is known for known in self.trainers()):
            return False
        self._trainers.append(weakref.ref(trainer))
        return True

    def add_inputs(self, inputs: object) -> None:
        """Watch the arrays in `inputs`, which hold mini-batches from step to step."""
        self._inputs += arrays(inputs)

    def models(self) -> list[Block]:
        """Return the models that still exist."""
        return [model for ref in self._models if (model := ref()) is not None]

    def trainers(self) -> list[Trainer]:
        """Return the trainers that still exist."""
        return [trainer for ref in self._trainers if (trainer := ref()) is not None]

    def inputs(self) -> list[mx.nd.NDArray]:
        """Return the kept inputs."""
        return self._inputs

    def parameters(self) -> list[tuple[str, Parameter]]:
        """Return the models' parameters, each once, and those that only a trainer holds."""
        named = [
            (prefix + name, parameter)
            for prefix, model in self.prefixes()
            for name, parameter in model._collect_params_with_prefix().items()  # noqa: SLF001 - structural names
        ]
        named += [(p.name, p) for trainer in self.trainers() for p in updated(trainer)]
        first: dict[int, tuple[str, Parameter]] = {}
        for name, parameter in named:
            first.setdefault(id(parameter), (name, parameter))
        return list(first.values())

    def is_updated_by(self, trainer: Trainer) -> bool:
        """Return whether a trainer updates any parameter of the known models."""
        known = {id(p) for model in self.models() for p in model.collect_params().values()}
        return any(id(p) in known for p in updated(trainer))

    def is_complete(self) -> bool:
        """Return whether every parameter that the known trainers update belongs to a known model."""
        known = {id(p) for model in self.models() for p in model.collect_params().values()}
        trainers = self.trainers()
        return bool(trainers) and all(id(p) in known for trainer in trainers for p in updated(trainer))

    def prefixes(self) -> list[tuple[str, Block]]:
        """Return each model with the prefix of its names."""
        return prefixes(self.models())


def parts(block: Block) -> Iterator[Block]:
    """Yield a block and every block inside it."""
    yield block
    for child in block._children.values():  # noqa: SLF001 - there is no public walk
        yield from parts(child)


def updated(trainer: Trainer) -> list[Parameter]:
    """Return a trainer's parameters, in the order of its state."""
    return list(trainer._params)  # noqa: SLF001


def is_buffer(parameter: Parameter) -> bool:
    """Return whether a `Parameter` is a buffer: running statistics and constants are."""
    return isinstance(parameter, Constant) or not parameter._differentiable  # noqa: SLF001


def everything(watched: Watched) -> list[Owned]:
    """Return the storages of weights, buffers, gradients, optimizer state, kept inputs and workspaces."""
    named = watched.parameters()
    rows = [
        *_data(named),
        *gradients(named),
        *(row for trainer in watched.trainers() for row in state(trainer, named)),
        *inputs(watched.inputs()),
    ]
    devices = {row.device for row in rows} or {layout.device_number(layout.CPU, 0)}
    return [*rows, *(row for device in sorted(devices) for row in workspaces(device))]


def gradients(named: Named) -> list[Owned]:
    """Return the gradients that exist, under their parameters' names."""
    return _owned(Role.GRADIENT, ((name, array) for name, p in named for array in _listed(p, "list_grad")))


def gradients_of(trainer: Trainer, named: Named) -> list[Owned]:
    """Return the gradients that a trainer is about to read."""
    read = {id(parameter) for parameter in updated(trainer)}
    return gradients([(name, parameter) for name, parameter in named if id(parameter) in read])


def state(trainer: Trainer, named: Named) -> list[Owned]:
    """Return a trainer's state, each array named "parameter/slot"."""
    names = {id(parameter): name for name, parameter in named}
    listed = updated(trainer)
    return _owned(
        Role.OPTIMIZER_STATE,
        (
            (f"{names.get(id(listed[index]), listed[index].name)}/{slot}", array)
            for updater in _updaters(trainer)
            for index, kept in updater.states.items()
            for slot, array in _slots(type(trainer.optimizer).__name__, kept)
        ),
    )


def inputs(arguments: object) -> list[Owned]:
    """Return the arrays among a call's arguments."""
    return _owned(Role.INPUT, ((f"input{i}", array) for i, array in enumerate(arrays(arguments))))


def workspaces(device: int) -> list[Owned]:
    """Return the workspaces of the calling thread's operators on a device."""
    found = enumerate(layout.workspaces(device))
    return [Owned(*storage, Role.WORKSPACE, f"{name} {i}", f"[{storage[2]}]") for i, (name, storage) in found]


def arrays(arguments: object) -> list[mx.nd.NDArray]:
    """Return the arrays in nested lists, tuples and dictionaries."""
    if isinstance(arguments, mx.nd.NDArray):
        return [arguments]
    if isinstance(arguments, dict):
        arguments = list(arguments.values())
    if not isinstance(arguments, list | tuple):
        return []
    return [array for argument in arguments for array in arrays(argument)]


def visible() -> dict[int, layout.Storage]:
    """Return the storages of all arrays that Python can see, by address."""
    # Check only the type of an unknown object: reading more of it may run the user's code.
    found = (layout.storage(thing) for thing in gc.get_objects() if issubclass(type(thing), mx.nd.NDArray))
    return {storage[1]: storage for storage in found if storage is not None}


def _data(named: Named) -> list[Owned]:
    weights = [(name, p) for name, p in named if not is_buffer(p)]
    buffers = [(name, p) for name, p in named if is_buffer(p)]
    return [
        *_owned(Role.WEIGHT, ((name, array) for name, p in weights for array in data(p))),
        *_owned(Role.BUFFER, ((name, array) for name, p in buffers for array in data(p))),
    ]


def data(parameter: Parameter) -> list[mx.nd.NDArray]:
    """Return a parameter's arrays, one per device; none before its shape is known."""
    return _listed(parameter, "list_data")


def _listed(parameter: Parameter, method: str) -> list[mx.nd.NDArray]:
    """Return a parameter's arrays or gradients, one per device; none before its shape is known."""
    try:
        listed: list[mx.nd.NDArray] = getattr(parameter, method)()
    except (RuntimeError, mx.base.MXNetError):
        return []
    return listed


def _updaters(trainer: Trainer) -> list[mx.optimizer.Updater]:
    store = trainer._kvstore  # noqa: SLF001
    remote = getattr(store, "_updater", None) if trainer._update_on_kvstore else None  # noqa: SLF001
    return [*trainer._updaters, *([] if remote is None else [remote])]  # noqa: SLF001


def _slots(optimizer: str, kept: object) -> Iterator[tuple[str, mx.nd.NDArray]]:
    names = _SLOTS.get(optimizer, ())
    for number, array in enumerate(arrays(kept)):
        yield names[number] if number < len(names) else f"state{number}", array


def _owned(role: Role, named: Iterable[tuple[str, mx.nd.NDArray]]) -> list[Owned]:
    rows: dict[tuple[int, int], Owned] = {}
    for name, array in named:
        storage = layout.storage(array)
        if storage is not None:
            row = Owned(*storage, role, name, json.dumps(list(array.shape)))
            rows.setdefault(storage[:2], row)
    return list(rows.values())
