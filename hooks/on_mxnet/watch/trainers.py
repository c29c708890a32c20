"""What updates weights: Gluon's trainers, and modules, which update their own."""

from collections.abc import Hashable, Iterator, Mapping
from typing import TypeAlias

import mxnet as mx
from mxnet.gluon import Trainer
from mxnet.module.base_module import BaseModule

from tbdprof.hooks.on_mxnet.watch import held, symbols
from tbdprof.hooks.on_mxnet.watch.held import Held

AnyTrainer: TypeAlias = Trainer | BaseModule


def parameters(trainer: AnyTrainer) -> list[Held]:
    """Return what a trainer updates; of a Gluon trainer in the order of its state."""
    if isinstance(trainer, Trainer):
        return [held.of_parameter(parameter) for parameter in trainer._params]  # noqa: SLF001
    return [each for each in symbols.held(trainer) if not each.is_buffer]


def keys(trainer: AnyTrainer) -> list[Hashable]:
    """Return the keys of what a trainer updates."""
    if isinstance(trainer, Trainer):
        return [id(parameter) for parameter in trainer._params]  # noqa: SLF001
    return [each.key for each in parameters(trainer)]


def optimizers(trainer: AnyTrainer) -> list[mx.optimizer.Optimizer]:
    """Return a trainer's optimizer, or the optimizers of a module made of modules."""
    return [trainer.optimizer] if isinstance(trainer, Trainer) else symbols.optimizers(trainer)


def states(trainer: AnyTrainer, names: Mapping[Hashable, str]) -> Iterator[tuple[str, str, object]]:
    """Yield the name of each updated parameter, its optimizer's class, and the state that is kept for it."""
    if isinstance(trainer, BaseModule):
        for updater, name_of in symbols.updaters(trainer):
            for index, kept in updater.states.items():
                name = name_of(index)
                yield names.get((id(trainer), name), name), type(updater.optimizer).__name__, kept
        return
    listed = trainer._params  # noqa: SLF001
    for updater in _updaters(trainer):
        for index, kept in updater.states.items():
            parameter = listed[index]
            yield names.get(id(parameter), parameter.name), type(trainer.optimizer).__name__, kept


def store_names(trainer: AnyTrainer) -> dict[tuple[int, str], Hashable]:
    """Map a store and the text of its key to the key of the parameter that the store keeps under it."""
    if isinstance(trainer, BaseModule):
        return {(id(s), each.name): each.key for s in symbols.stores(trainer) for each in symbols.held(trainer)}
    store = trainer._kvstore  # noqa: SLF001
    listed = trainer._params if store is not None else []  # noqa: SLF001
    return {(id(store), str(index)): id(parameter) for index, parameter in enumerate(listed)}


def _updaters(trainer: Trainer) -> list[mx.optimizer.Updater]:
    store = trainer._kvstore  # noqa: SLF001
    remote = getattr(store, "_updater", None) if trainer._update_on_kvstore else None  # noqa: SLF001
    return [*trainer._updaters, *([] if remote is None else [remote])]  # noqa: SLF001
