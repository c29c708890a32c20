"""Read where all owners' memory lies, many times in a window: who they are is found once, their values in one call.

A reading is part of the step that it ends. So one call of TensorFlow reads all variables, their names and sizes are
those found before, and the rows are made after the window.
"""

import json
import weakref
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context, execute
from tensorflow.python.framework.ops import EagerTensor

from tbdprof.facts.records import Role
from tbdprof.hooks.keras_objects import is_keras, parts
from tbdprof.hooks.on_tensorflow.session.events import READ_TOGETHER
from tbdprof.hooks.on_tensorflow.watch import owners
from tbdprof.hooks.on_tensorflow.watch.layers import is_layer
from tbdprof.hooks.on_tensorflow.watch.owners import Listed, Owned, Watched, device_text

Rows = Callable[[], list[Owned]]  # makes the rows of a reading


@dataclass(frozen=True, slots=True)
class _Owner:
    """An owner as it was found; the variable or tensor itself is not kept alive."""

    row: Owned  # without its address, and without its size if that may change
    thing: "weakref.ref[Any]"
    dtype: int  # TensorFlow's number of a variable's data type
    is_table: bool
    device: str | None  # where it is read with others, None: by itself

    def alone(self, mark: Callable[[], int]) -> Owned | None:
        """Return what it holds now, or None if that is not known."""
        thing = self.thing()
        return None if thing is None else Listed(self.row.role, self.row.name, thing).read(mark)


class Readings:
    """Reads the owners again and again."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self._owners: Sequence[_Owner] | None = None  # None: to be found for the next reading
        self._layers: list[weakref.ref[Any]] = []
        self._state: object = None  # of what they were found in

    def forget(self) -> None:
        """Find the owners again for the next reading: a variable was made, or a window begins."""
        self._owners = None

    def names(self) -> Mapping[int, str]:
        """Return the names of weights and buffers, by the `id` of the variable."""
        listed = ((each, each.thing()) for each in self._found() if each.row.role in (Role.WEIGHT, Role.BUFFER))
        return {id(thing): each.row.name for each, thing in listed if thing is not None}

    def together(self) -> Rows:
        """Read all owners, while no other thread may change them."""
        found: list[tuple[_Owner, int]] = []
        alone: list[_Owner] = []
        groups: defaultdict[str, list[tuple[_Owner, Any]]] = defaultdict(list)
        for each in self._found():
            thing = None if each.device is None else each.thing()
            if each.device is None or (each.is_table and thing is not None and owners.is_known_to_copy(thing)):
                alone.append(each)
            elif thing is not None:
                groups[each.device].append((each, thing))
        for group in groups.values():
            for (each, _), address in zip(group, _addresses(group), strict=True):
                if address is None:
                    alone.append(each)
                else:
                    found.append((each, address))
        rows = [row for each in alone if (row := each.alone(owners.no_mark)) is not None]
        return lambda: [*(replace(each.row, address=address) for each, address in found), *rows]

    def one_by_one(self, mark: Callable[[], int]) -> Rows:
        """Read all owners, and call `mark` while the value of each is held."""
        rows = [row for each in self._found() if (row := each.alone(mark)) is not None]
        return lambda: rows

    def _found(self) -> Sequence[_Owner]:
        if self._owners is None or self._state is None or self._state != self._state_now():
            layers = (layer for model in self._watched.models() for _, layer in parts("", model, is_layer))
            self._layers = [weakref.ref(layer) for layer in layers]
            self._state = self._state_now()
            self._owners = [_owner(each) for each in owners.listed(self._watched)]
        return self._owners

    def _state_now(self) -> object:
        """Return what changes if a layer is added, or a variable is given to another owner; None if nothing shows it.

        Only Keras's layers and optimizers list what they are given. `forget` is called for new variables.
        """
        watched = self._watched
        layers: list[Any] = [each() for each in self._layers]
        if not all(map(is_keras, layers)):  # a plain module, or one that is gone
            return None
        everything = (*watched.models(), *watched.optimizers(), *watched.inputs())
        lists = [value for each in watched.optimizers() for value in vars(each).values() if isinstance(value, list)]
        own = [(each._layers, each._trainable_variables, each._non_trainable_variables) for each in layers]  # noqa: SLF001
        return list(map(id, everything)), list(map(len, lists)), [tuple(map(len, each)) for each in own]


def _owner(listed: Listed) -> _Owner:
    """Return an owner with all that a reading needs to know of it."""
    thing, row = listed.thing, Owned(listed.role, listed.name, "", 0, 0, "")
    if not isinstance(thing, tf.Variable) or not isinstance(thing.handle, EagerTensor):
        return _Owner(row, weakref.ref(thing), dtype=0, is_table=False, device=None)
    dtype, size, is_table = thing.dtype, thing.shape.num_elements(), owners.is_table(thing)
    if not size or not owners.is_readable(dtype):  # or its size is not fixed
        return _Owner(row, weakref.ref(thing), dtype=0, is_table=False, device=None)
    device, shape = thing.handle.device, json.dumps(thing.shape.as_list())
    row = replace(row, device=device_text(device), bytes=dtype.size * size, shape=shape)
    return _Owner(row, weakref.ref(thing), dtype.as_datatype_enum, is_table, device)


def _addresses(group: Sequence[tuple[_Owner, Any]]) -> Sequence[int | None]:
    """Return where the values of some variables of one device lie; None for one that must be read by itself."""
    try:
        values = _values(group)
        tables = [each for each in group if each[0].is_table]
        again = iter(_values(tables))
    except tf.errors.OpError:  # one of them has no value yet
        return [None] * len(group)
    found = list(map(owners.address_in, values))
    # Both values of a table are held: if they lie apart, it copies its value for every reader.
    return [
        None if owner.is_table and owners.address_in(next(again)) != address else address
        for (owner, _), address in zip(group, found, strict=True)
    ]


def _values(group: Sequence[tuple[_Owner, Any]]) -> Sequence[Any]:
    """Return the values of variables of one device; no callback and no tape takes note of it."""
    handles, types = [thing.handle for _, thing in group], [owner.dtype for owner, _ in group]
    number = len(handles)
    if not number:
        return ()
    taken: Sequence[Any] = execute.quick_execute(
        READ_TOGETHER, number, handles, ("N", number, "dtypes", types), context.context()
    )
    return taken
