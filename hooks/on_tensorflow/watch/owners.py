"""The memory that TensorFlow's models and optimizers own: addresses of variables and tensors at the time of a call.

An assignment may give a variable another buffer, so an address is valid only until the next assignment.
"""

import ctypes
import json
import weakref
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf
from tensorflow.python.framework.ops import EagerTensor
from tensorflow.python.ops.gen_array_ops import deep_copy
from tensorflow.python.ops.gen_resource_variable_ops import (
    disable_copy_on_read,
    read_variable_op,
    resource_scatter_add,
)

from tbdprof.facts.records import Role
from tbdprof.hooks.instances import instances_of
from tbdprof.hooks.keras_objects import slots, trained_by
from tbdprof.hooks.on_tensorflow.watch.layers import replica_ending
from tbdprof.hooks.on_tensorflow.watch.variables import (
    Named,
    all_copies,
    copies,
    dotted,
    plain,
    variables_of,
)
from tbdprof.hooks.threads import are_others

NO_MARK = -1
_TABLE = 2  # dimensions of a table of rows
_MOVED = 3  # reads in a row during which another thread replaces a variable's buffer: never observed
_copying: set[int] = set()  # handles of variables found to copy on read; they keep doing so
_UNREADABLE = (tf.string, tf.resource, tf.variant)
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


@dataclass(frozen=True, slots=True)
class Owned:
    """The purpose of a block of memory, as its owner reports it."""

    role: Role
    name: str
    device: str
    address: int
    bytes: int
    shape: str
    mark: int = NO_MARK  # number of the marker set while it was held, if other threads might change it


def no_mark() -> int:
    """Set no marker."""
    return NO_MARK


class Watched:
    """The models, optimizers and inputs whose memory is named, held by weak references."""

    def __init__(self) -> None:
        self._models: list[weakref.ref[Any]] = []
        self._optimizers: list[weakref.ref[Any]] = []
        self._inputs: list[weakref.ref[Any]] = []

    def add_model(self, model: object) -> None:
        """Watch a model."""
        if not any(model is known for known in self.models()):
            self._models.append(weakref.ref(model))

    def add_optimizer(self, optimizer: object) -> None:
        """Watch an optimizer."""
        if not any(optimizer is known for known in self.optimizers()):
            self._optimizers.append(weakref.ref(optimizer))

    def add_inputs(self, inputs: Sequence[object]) -> None:
        """Watch the tensors in `inputs`, which hold mini-batches from step to step."""
        flat = tf.nest.flatten(list(inputs))
        self._inputs += [weakref.ref(each) for each in flat if isinstance(each, EagerTensor | tf.Variable)]

    def models(self) -> list[Any]:
        """Return the models that still exist."""
        return [model for ref in self._models if (model := ref()) is not None]

    def optimizers(self) -> list[Any]:
        """Return the optimizers that still exist."""
        return [optimizer for ref in self._optimizers if (optimizer := ref()) is not None]

    def inputs(self) -> list[Any]:
        """Return the kept inputs that still exist."""
        return [tensor for ref in self._inputs if (tensor := ref()) is not None]

    def variables(self) -> list[Named]:
        """Return the models' variables, and those that only an optimizer holds."""
        named = variables_of(self.models())
        known = {id(each.variable) for each in named}
        for optimizer in self.optimizers():
            for each in trained_by(optimizer):
                if id(plain(each)) not in known:
                    known.add(id(plain(each)))
                    named += all_copies(dotted(each), each)
        return named


@dataclass(frozen=True, slots=True)
class Listed:
    """Something that owns memory: a variable or a tensor, with its role and its name in the reports."""

    role: Role
    name: str
    thing: Any

    def read(self, mark: Callable[[], int] = no_mark) -> Owned | None:
        """Return what it holds now, or None if that is not known; it is held while `mark` is called."""
        of = of_variable if isinstance(self.thing, tf.Variable) else of_tensor
        return of(self.role, self.name, self.thing, mark)


def listed(watched: Watched) -> list[Listed]:
    """Return the owners of weights, buffers, optimizer state and kept inputs, in this order."""
    named = watched.variables()
    found = [Listed(role_of(each), each.name, each.variable) for each in named]
    names = {id(each.variable): each.name for each in named}
    for number, optimizer in enumerate(watched.optimizers()):
        whole = optimizer.name if number == 0 else f"{optimizer.name}{number}"
        for slot, variable, state in slots(optimizer):
            first = whole if variable is None else names[id(plain(variable))]
            for replica, copy in enumerate(copies(state)):
                found.append(Listed(Role.OPTIMIZER_STATE, f"{first}{replica_ending(replica)}/{slot}", copy))
    return found + [Listed(Role.INPUT, f"input{number}", each) for number, each in enumerate(watched.inputs())]


def of_variable(role: Role, name: str, variable: Any, mark: Callable[[], int] = no_mark) -> Owned | None:
    """Return what a variable holds now, or None if that is not known; it is held while `mark` is called."""
    if not is_readable(variable.dtype) or not isinstance(variable.handle, EagerTensor):
        return None
    try:
        # Hold the value as briefly as possible: an update in place would copy it meanwhile.
        if not copies_when_read(variable):
            return of_tensor(role, name, read_variable_op(variable.handle, variable.dtype), mark)
        disable_copy_on_read(variable.handle)
        row = of_tensor(role, name, read_variable_op(variable.handle, variable.dtype), mark)
        _update_nothing(variable)  # makes the variable copy on read again
    except tf.errors.FailedPreconditionError:  # it has no value yet
        return None
    return row


def copies_when_read(variable: Any) -> bool:
    """Return whether a variable copies its value for every reader, as it does once rows of it were updated.

    Only a matrix is tested, because the test makes such copies. The result is kept.
    """
    if not is_table(variable):
        return False
    if variable.handle._id not in _copying:  # noqa: SLF001 - a number that no other tensor ever has
        read = [read_variable_op(variable.handle, variable.dtype)]
        # All are held, so two reads at one address are not copies. Another thread's update may come between two reads.
        for _ in range(_MOVED if are_others() else 1):
            read.append(read_variable_op(variable.handle, variable.dtype))
            if address_of(read[-2]) == address_of(read[-1]):
                return False
        _copying.add(variable.handle._id)  # noqa: SLF001
    return True


def is_table(variable: Any) -> bool:
    """Return whether rows of a variable may be updated, so that it may come to copy its value for every reader."""
    return variable.shape.rank == _TABLE and bool(variable.shape.num_elements())


def is_known_to_copy(variable: Any) -> bool:
    """Return whether a variable was found to copy its value for every reader."""
    return variable.handle._id in _copying  # noqa: SLF001


def _update_nothing(variable: Any) -> None:
    empty = tf.zeros((0, *variable.shape.as_list()[1:]), variable.dtype)
    resource_scatter_add(variable.handle, tf.zeros((0,), tf.int32), empty)


def of_tensor(role: Role, name: str, tensor: Any, mark: Callable[[], int] = no_mark) -> Owned | None:
    """Return what an eager tensor holds, or None if that is not known; `mark` returns the marker's number."""
    address = address_of(tensor)
    if not address:
        return None
    shape = tensor.shape.as_list()
    size = tensor.dtype.size * int(tensor.shape.num_elements())
    return Owned(role, name, device_text(tensor.device), address, size, json.dumps(shape), mark())


def address_of(tensor: Any) -> int:
    """Return the address of an eager tensor's data, or 0 if it is not known."""
    if not is_readable(tensor.dtype) or not tensor.shape.num_elements():
        return 0
    return address_in(tensor)


def address_in(tensor: Any) -> int:
    """Return the address of an eager tensor that has data, of a type that numpy knows."""
    capsule = tf.experimental.dlpack.to_dlpack(tensor)
    # The first field of a DLManagedTensor is the data's address.
    return int(ctypes.c_uint64.from_address(_pointer(capsule, b"dltensor")).value)


def is_readable(dtype: Any) -> bool:
    """Return whether values of a type have an address."""
    return dtype not in _UNREADABLE


def renew(watched: Watched, known: Container[int]) -> None:
    """Give every variable and state a new buffer with the same bits, unless it lies at a known address."""
    every = (state for optimizer in watched.optimizers() for _, _, state in slots(optimizer))
    states = (copy for state in every for copy in copies(state))
    for variable in (*(each.variable for each in watched.variables()), *states):
        row = of_variable(Role.UNKNOWN, "", variable)
        if row is None or row.address in known:
            continue
        # If there is no memory for a new buffer, the variable keeps its own.
        with suppress(tf.errors.ResourceExhaustedError):
            variable.assign(deep_copy(read_variable_op(variable.handle, variable.dtype)))


def visible(device: str | None = None) -> dict[int, Owned]:
    """Return the eager tensors and variables that Python can see, by address, of one device or of all.

    Variables have a name, tensors have none.
    """
    found: dict[int, Owned] = {}
    for thing in instances_of(EagerTensor, tf.Variable):
        if type(thing) is EagerTensor:
            row = of_tensor(Role.UNKNOWN, "", thing)
        elif issubclass(type(thing), tf.Variable) and hasattr(thing, "_handle"):
            row = of_variable(Role.UNKNOWN, thing.name, thing)
        else:
            continue
        if row is not None and device in (None, row.device) and not (row.address in found and found[row.address].name):
            found[row.address] = row
    return found


def found_models(optimizers: Sequence[Any]) -> list[Any]:
    """Return the outermost Keras models and modules with a variable that the optimizers update."""
    trained = {id(plain(each)) for optimizer in optimizers for each in trained_by(optimizer)}
    having = [each for each in instances_of(keras.Layer, tf.Module) if trained & _ids(each)]
    parts = {id(part) for each in having for part in _parts(each)}
    return [each for each in having if id(each) not in parts]


def found_optimizers(models: Sequence[Any]) -> list[Any]:
    """Return the Keras optimizers that update a variable of the models, or any variable if there is no model."""
    wanted = {each for model in models for each in _ids(model)}
    every = [each for each in instances_of(keras.optimizers.Optimizer) if trained_by(each)]
    return [each for each in every if not models or wanted & {id(plain(variable)) for variable in trained_by(each)}]


def device_text(device: str) -> str:
    """Return "cpu" or "cuda:N" for TensorFlow's name of a device."""
    kind, _, number = device.rpartition("device:")[2].partition(":")
    return f"cuda:{number}" if kind == "GPU" else "cpu"


def role_of(named: Named) -> Role:
    """Return the role of a model's variable."""
    return Role.BUFFER if named.is_buffer else Role.WEIGHT


def _ids(model: Any) -> set[int]:
    variables: Iterable[Any] = (*model.trainable_variables, *model.non_trainable_variables)
    return {id(plain(each)) for each in variables}


def _parts(model: Any) -> list[Any]:
    """Return a model's parts; a sequence of layers also holds a graph of them, which Keras does not list as a part."""
    if not isinstance(model, keras.Layer):
        return list(model.submodules)
    return [*model._flatten_layers(include_self=False), getattr(model, "_functional", None)]  # noqa: SLF001
