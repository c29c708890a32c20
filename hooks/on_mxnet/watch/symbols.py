"""What MXNet's symbolic API holds: modules and executors with their weights, inputs, and the state of their optimizers.

A module has an executor for each device, and a bucketing module also for each bucket; buckets share their weights. An
executor that no module has (`Symbol.bind`, `FeedForward`) trains the arguments that have a gradient.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import mxnet as mx
from mxnet.executor import Executor
from mxnet.module import BucketingModule, Module, SequentialModule
from mxnet.module.base_module import BaseModule

from tbdprof.hooks.on_mxnet.watch.held import Held

Symbolic: TypeAlias = BaseModule | Executor
NameOf = Callable[[object], str]  # of a parameter, from the index under which an updater keeps its state


def leaves(root: BaseModule) -> list[Module]:
    """Return the modules with executors that a module is made of."""
    if isinstance(root, BucketingModule):
        return [leaf for part in root._buckets.values() for leaf in leaves(part)]  # noqa: SLF001
    if isinstance(root, SequentialModule):
        return [leaf for part in root._modules for leaf in leaves(part)]  # noqa: SLF001
    return [root] if isinstance(root, Module) else []


def name(root: Symbolic) -> str:
    """Return a name to distinguish a model from others: that of its last symbol."""
    symbols = [executor._symbol for executor in executors(root)]  # noqa: SLF001
    return (symbols[-1].name if symbols else None) or type(root).__name__.lower()


def executors(root: Symbolic) -> list[Executor]:
    """Return the executors of a module."""
    return [executor for executor, _ in _executors(root)]


def held(root: Symbolic) -> list[Held]:
    """Return weights and buffers, each once; none before the module is bound."""
    found: dict[str, Held] = {}
    for executors, weights in _groups(root):
        for each in _of_group(root, executors, weights):
            found.setdefault(each.name, each)
    return list(found.values())


def inputs(root: Symbolic) -> list[mx.nd.NDArray]:
    """Return the arrays into which mini-batches and labels are copied."""
    found = list[mx.nd.NDArray]()
    for executor, weights in _executors(root):
        arguments = zip(executor._symbol.list_arguments(), executor.arg_arrays, strict=True)  # noqa: SLF001
        found += [array for argument, array in arguments if argument not in weights]
    for leaf in leaves(root) if isinstance(root, BaseModule) else []:
        group = leaf._exec_group  # noqa: SLF001
        found += [array for shared in getattr(group, "shared_data_arrays", ()) for array in shared.values()]
    return found


def updaters(root: Symbolic) -> list[tuple[mx.optimizer.Updater, NameOf]]:
    """Return what updates a module's weights, with the function that names a weight from its index."""
    found: dict[int, tuple[mx.optimizer.Updater, NameOf]] = {}
    for leaf in leaves(root) if isinstance(root, BaseModule) else []:
        updater = leaf._updater or getattr(leaf._kvstore, "_updater", None)  # noqa: SLF001
        if updater is not None and leaf._exec_group is not None:  # noqa: SLF001
            found.setdefault(id(updater), (updater, _name_of(leaf)))
    return list(found.values())


def optimizers(root: Symbolic) -> list[mx.optimizer.Optimizer]:
    """Return a module's optimizers, each once."""
    modules = leaves(root) if isinstance(root, BaseModule) else []
    found = {id(leaf._optimizer): leaf._optimizer for leaf in modules if leaf._optimizer is not None}  # noqa: SLF001
    return list(found.values())


def stores(root: Symbolic) -> list[mx.kvstore.KVStoreBase]:
    """Return the stores through which a module's devices exchange gradients."""
    modules = leaves(root) if isinstance(root, BaseModule) else []
    return [leaf._kvstore for leaf in modules if leaf._kvstore is not None]  # noqa: SLF001


def _name_of(leaf: Module) -> NameOf:
    names, devices = leaf._param_names, len(leaf._context)  # noqa: SLF001

    def name_of(index: object) -> str:
        """Return a name; an updater outside the store numbers each device's copy."""
        if not isinstance(index, int):
            return str(index)
        return str(names[index if leaf._update_on_kvstore else index // devices])  # noqa: SLF001

    return name_of


def _groups(root: Symbolic) -> Iterator[tuple[Sequence[Executor], Sequence[str] | None]]:
    """Yield executors that run side by side, one for each device, with the names of their weights if known."""
    if isinstance(root, Executor):
        yield [root], None
        return
    for leaf in leaves(root):
        group = leaf._exec_group  # noqa: SLF001
        if group is not None:
            yield group.execs, group.param_names


def _executors(root: Symbolic) -> Iterator[tuple[Executor, Sequence[str]]]:
    """Yield each executor with the names of its weights, those among them that wait for another batch size."""
    for executors, weights in _groups(root):
        for executor in executors:
            yield executor, _trained(executor) if weights is None else weights
    for leaf in leaves(root) if isinstance(root, BaseModule) else []:
        group = leaf._exec_group  # noqa: SLF001
        for executor in getattr(group, "_default_execs", None) or ():
            yield executor, group.param_names


def _trained(executor: Executor) -> list[str]:
    arguments = executor._symbol.list_arguments()  # noqa: SLF001
    return [one for one, gradient in zip(arguments, executor.grad_arrays, strict=True) if gradient is not None]


def _of_group(root: Symbolic, executors: Sequence[Executor], weights: Sequence[str] | None) -> Iterator[Held]:
    symbol = executors[0]._symbol  # noqa: SLF001
    wanted = set(_trained(executors[0]) if weights is None else weights)
    for place, argument in enumerate(symbol.list_arguments()):
        if argument in wanted:
            gradients = [each.grad_arrays[place] for each in executors if each.grad_arrays[place] is not None]
            arrays = [each.arg_arrays[place] for each in executors]
            yield Held((id(root), argument), argument, arrays, gradients, bool(gradients), is_buffer=False)
    for place, auxiliary in enumerate(symbol.list_auxiliary_states()):
        arrays = [each.aux_arrays[place] for each in executors]
        yield Held((id(root), auxiliary), auxiliary, arrays, [], is_trained=False, is_buffer=True)
