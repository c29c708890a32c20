"""The storages that MXNet's models and trainers own, and the arrays that exist."""

import functools
import json
import weakref
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

import mxnet as mx
from mxnet.gluon import Block, Parameter
from mxnet.module.base_module import BaseModule

from tbdprof.facts.records import Role
from tbdprof.hooks.instances import instances_of
from tbdprof.hooks.naming import prefixes
from tbdprof.hooks.on_mxnet.memory import blocks
from tbdprof.hooks.on_mxnet.memory.blocks import Stored
from tbdprof.hooks.on_mxnet.session import layout
from tbdprof.hooks.on_mxnet.watch import held, symbols, trainers
from tbdprof.hooks.on_mxnet.watch.held import Held
from tbdprof.hooks.on_mxnet.watch.symbols import Symbolic
from tbdprof.hooks.on_mxnet.watch.trainers import AnyTrainer

Model: TypeAlias = Block | Symbolic
Named = Sequence[tuple[str, Held]]

# The names of the state arrays that MXNet's optimizers keep for a parameter, in their order.
_SLOTS = {"SGD": ("momentum",), "NAG": ("momentum",), "Adam": ("mean", "variance"), "RMSProp": ("n", "g", "delta")}
# The parts of a row_sparse array: they are of no known size, so their names are not in the list of parameters.
_PARTS = (" [values]", " [indices]")


class Owned(NamedTuple):
    """A storage and its role."""

    device: int
    address: int
    size_bytes: int
    role: Role
    name: str
    shape: str  # JSON


class Watched:
    """The models and trainers whose memory is named, held by weak references; inputs are held, as no array takes one.

    With one model, names have no prefix. With several Gluon blocks, each name begins with its model's class in lower
    case, or with the name that MXNet gave the block if a class occurs twice: `generator.`, `hybridsequential1.`. The
    names in symbols differ of themselves; where they do not, each begins with the name of its symbol.
    """

    def __init__(self) -> None:
        self._models: list[weakref.ref[Model]] = []
        self._trainers: list[weakref.ref[AnyTrainer]] = []
        self._inputs: list[mx.nd.NDArray] = []

    def add_model(self, model: Model) -> bool:
        """Watch a model, and no longer its parts on their own; return false if it is watched already."""
        known = self.models()
        if any(model is part for root in known for part in _parts(root)):
            return False
        inside = {id(part) for part in _parts(model)}
        self._models = [weakref.ref(root) for root in (*(root for root in known if id(root) not in inside), model)]
        return True

    def add_trainer(self, trainer: AnyTrainer) -> bool:
        """Watch a trainer; return false if it is watched already."""
        if any(trainer is known for known in self.trainers()):
            return False
        self._trainers.append(weakref.ref(trainer))
        return True

    def add_module(self, module: BaseModule) -> None:
        """Watch a module, which is a model and its trainer in one."""
        self.add_model(module)
        self.add_trainer(module)

    def add_inputs(self, inputs: object) -> None:
        """Watch the arrays in `inputs`, which hold mini-batches from step to step."""
        self._inputs += arrays(inputs)

    def models(self) -> list[Model]:
        """Return the models that still exist."""
        return [model for ref in self._models if (model := ref()) is not None]

    def blocks(self) -> list[Block]:
        """Return the Gluon blocks among the models."""
        return [model for model in self.models() if isinstance(model, Block)]

    def trainers(self) -> list[AnyTrainer]:
        """Return the trainers that still exist."""
        return [trainer for ref in self._trainers if (trainer := ref()) is not None]

    def inputs(self) -> list[mx.nd.NDArray]:
        """Return the kept inputs, and those that modules and executors keep."""
        of_symbols = [each for model in self.models() if not isinstance(model, Block) for each in symbols.inputs(model)]
        return [*self._inputs, *of_symbols]

    def parameters(self) -> list[tuple[str, Held]]:
        """Return the models' parameters, each once, and those that only a trainer holds, or only the script."""
        if not self._models and not self._trainers:
            return [(each.name, each) for each in held.loose(instances_of(Parameter, mx.nd.NDArray))]
        named = [
            (prefix + name, held.of_parameter(parameter))
            for prefix, model in self.prefixes()
            for name, parameter in model._collect_params_with_prefix().items()  # noqa: SLF001 - structural names
        ]
        named += self._of_symbols()
        first: dict[Hashable, tuple[str, Held]] = {}
        for name, each in named:
            first.setdefault(each.key, (name, each))
        for trainer in self.trainers():
            if not first.keys() >= set(trainers.keys(trainer)):
                for each in trainers.parameters(trainer):
                    first.setdefault(each.key, (each.name, each))
        return list(first.values())

    def _of_symbols(self) -> list[tuple[str, Held]]:
        models = [model for model in self.models() if not isinstance(model, Block)]
        listed = [(model, symbols.held(model)) for model in models]
        every = [each.name for _, of_model in listed for each in of_model]
        clash = len(set(every)) < len(every)
        return [
            (f"{symbols.name(model)}.{each.name}" if clash else each.name, each)
            for model, of_model in listed
            for each in of_model
        ]

    def is_updated_by(self, trainer: AnyTrainer) -> bool:
        """Return whether a trainer updates any parameter of the known models."""
        known = self._keys()
        return any(key in known for key in trainers.keys(trainer))

    def is_complete(self) -> bool:
        """Return whether every parameter that the known trainers update belongs to a known model."""
        known, all_trainers = self._keys(), self.trainers()
        return bool(all_trainers) and all(key in known for trainer in all_trainers for key in trainers.keys(trainer))

    def prefixes(self) -> list[tuple[str, Block]]:
        """Return each Gluon block with the prefix of its names."""
        models = self.blocks()
        given = prefixes(models)
        classes = [type(block).__name__ for block in models]
        names = [block.name for block in models]
        if len(models) < 2 or not all(names) or len(set(names)) < len(names):
            return given
        return [
            (f"{block.name}." if classes.count(type(block).__name__) > 1 else prefix, block) for prefix, block in given
        ]

    def _keys(self) -> set[Hashable]:
        known: set[Hashable] = {id(p) for block in self.blocks() for p in block.collect_params().values()}
        of_symbols = (model for model in self.models() if not isinstance(model, Block))
        return known | {each.key for model in of_symbols for each in symbols.held(model)}


def _parts(model: Model) -> Iterator[object]:
    """Yield a model and every model inside it."""
    if isinstance(model, Block):
        yield from held.parts(model)
        return
    yield model
    if isinstance(model, BaseModule):
        yield from symbols.leaves(model)
        yield from symbols.executors(model)


def everything(watched: Watched, stored: Mapping[int, Stored] = MappingProxyType({})) -> list[Owned]:
    """Return the storages of weights, buffers, gradients, optimizer state, kept inputs and workspaces.

    `stored` has the blocks by address that the stores through which devices exchange gradients keep for themselves.
    """
    named = watched.parameters()
    rows = [
        *_data(named),
        *gradients(named),
        *(row for trainer in watched.trainers() for row in state(trainer, named)),
        *inputs(watched.inputs()),
    ]
    rows += _of_stores(watched, named, stored, {row.address for row in rows})
    devices = {row.device for row in rows if layout.has_operators(row.device)} or {layout.device_number(layout.CPU, 0)}
    return [*rows, *(row for device in sorted(devices) for row in workspaces(device))]


def gradients(named: Named) -> list[Owned]:
    """Return the gradients that exist, under their parameters' names."""
    return _owned(Role.GRADIENT, ((name, array) for name, each in named for array in each.gradients))


def gradients_of(trainer: AnyTrainer, named: Named) -> list[Owned]:
    """Return the gradients that a trainer is about to read."""
    read = set(trainers.keys(trainer))
    return gradients([(name, each) for name, each in named if each.key in read])


def state(trainer: AnyTrainer, named: Named) -> list[Owned]:
    """Return a trainer's state, each array named "parameter/slot"."""
    names = {each.key: name for name, each in named}
    return _owned(
        Role.OPTIMIZER_STATE,
        (
            (f"{name}/{slot}", array)
            for name, optimizer, kept in trainers.states(trainer, names)
            for slot, array in _slots(optimizer, kept)
        ),
    )


def exchanged(unseen: Mapping[int, blocks.Block]) -> list[Owned]:
    """Return the workspace of stores among blocks that Python cannot see: they alone use pinned memory.

    They keep it for gradients; a sparse gradient takes more of it whenever it has more rows than before.
    """
    return [
        Owned(block.device, at, block.size_bytes, Role.WORKSPACE, "exchange between devices", f"[{block.size_bytes}]")
        for at, block in unseen.items()
        if layout.is_pinned(block.device)
    ]


def stored_copies(watched: Watched, stored: Mapping[int, Stored]) -> dict[Hashable, int]:
    """Return how many bytes of each parameter, by its key, the stores keep in copies of their own."""
    known = {place: key for trainer in watched.trainers() for place, key in trainers.store_names(trainer).items()}
    found: dict[Hashable, int] = {}
    for each in stored.values():
        key = known.get((each.store, each.key))
        if each.is_weight and key is not None:
            found[key] = found.get(key, 0) + each.size_bytes
    return found


def _of_stores(watched: Watched, named: Named, stored: Mapping[int, Stored], held_at: set[int]) -> Iterator[Owned]:
    if not stored:
        return
    known = {place: key for trainer in watched.trainers() for place, key in trainers.store_names(trainer).items()}
    owners = {each.key: (name, each) for name, each in named}
    for address, each in stored.items():
        owner = owners.get(known.get((each.store, each.key)))
        if owner is None or address in held_at:
            continue
        name, of_model = owner
        role = Role.BUFFER if of_model.is_buffer else Role.WEIGHT
        if not each.is_weight:
            role, name = Role.WORKSPACE, f"exchange of {name}"
        yield Owned(each.device, address, each.size_bytes, role, name, f"[{each.size_bytes}]")


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
    found = map(layout.storages, instances_of(mx.nd.NDArray))
    return {storage[1]: storage for storages in found for storage in storages}


def _data(named: Named) -> list[Owned]:
    return [
        *_owned(Role.WEIGHT, ((name, array) for name, each in named if not each.is_buffer for array in each.arrays)),
        *_owned(Role.BUFFER, ((name, array) for name, each in named if each.is_buffer for array in each.arrays)),
    ]


def _slots(optimizer: str, kept: object) -> Iterator[tuple[str, mx.nd.NDArray]]:
    names = _SLOTS.get(optimizer, ())
    for number, array in enumerate(arrays(kept)):
        yield names[number] if number < len(names) else f"state{number}", array


def _owned(role: Role, named: Iterable[tuple[str, mx.nd.NDArray]]) -> list[Owned]:
    listed = [(name, layout.look(array), layout.is_sparse(array)) for name, array in named]
    return list(_rows(role, tuple(listed)))


@functools.lru_cache(maxsize=64)  # the same arrays are read several times a step
def _rows(role: Role, listed: Sequence[tuple[str, layout.Look, bool]]) -> tuple[Owned, ...]:
    """Return a row for each storage, once."""
    rows: dict[tuple[int, int], Owned] = {}
    for name, looked, is_sparse in listed:
        storages, shape = layout.read(looked)
        path, slash, slot = name.partition("/")
        for part, storage in zip(_PARTS if is_sparse else ("",), storages, strict=False):
            row = Owned(*storage, role, f"{path}{part}{slash}{slot}", json.dumps(list(shape)))
            rows.setdefault(storage[:2], row)
    return tuple(rows.values())
