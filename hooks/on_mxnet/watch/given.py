"""What a user handed over to be watched: Gluon blocks and trainers, modules, executors."""

from collections.abc import Sequence

import mxnet as mx
from mxnet.executor import Executor
from mxnet.gluon import Block, Trainer
from mxnet.module.base_module import BaseModule

from tbdprof.errors import UsageError
from tbdprof.hooks.on_mxnet.watch.owners import Watched

_OF_TRAINER = "give the gluon.Trainer or the mx.mod.Module that holds it"
_BARE = (mx.optimizer.Optimizer, mx.optimizer.Updater, mx.kvstore.KVStoreBase)


def add(watched: Watched, models: Sequence[object], optimizers: Sequence[object]) -> None:
    """Watch these; a module brings its optimizer. Raise UsageError, naming the class, for anything else."""
    for each in (*models, *optimizers):
        if not isinstance(each, Block | Trainer | BaseModule | Executor):
            raise UsageError(_why_not(each))
    for each in (*models, *optimizers):
        if isinstance(each, BaseModule):
            watched.add_module(each)
        elif isinstance(each, Trainer):
            watched.add_trainer(each)
        else:
            watched.add_model(each)


def _why_not(thing: object) -> str:
    kind = type(thing)
    what = f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(thing, _BARE):
        return f"{what} cannot be watched by itself: {_OF_TRAINER}"
    if isinstance(thing, mx.sym.Symbol):
        return f"{what} has no memory yet: give the mx.mod.Module or the executor that it is bound to"
    return f"{what} cannot be watched: give Gluon blocks and trainers, modules, or executors"
