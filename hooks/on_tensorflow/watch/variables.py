"""Names of variables: the path of their layer in the model, as in the tables by layer, and their own name in it.

"layer1.0.conv1.kernel" is `kernel` of the layer that `layers.Layers` names "layer1.0.conv1".
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf
from tensorflow.python.distribute.values import DistributedVariable

from tbdprof.hooks.keras_objects import is_keras, own_variables, parts
from tbdprof.hooks.naming import prefixes
from tbdprof.hooks.on_tensorflow.watch.layers import is_layer, replica_ending, variable_name


@dataclass(frozen=True, slots=True)
class Named:
    """A variable, its name in the reports, and its name in Keras or TensorFlow.

    A buffer is a variable that its layer creates as untrainable. A weight that is not trained, for example in a frozen
    layer, is not a buffer. Of a variable that a strategy copies for each replica, the first copy alone is trainable:
    the others follow it.
    """

    name: str
    path: str
    variable: tf.Variable
    trainable: bool = True
    is_buffer: bool = False


def variables_of(models: Sequence[object]) -> list[Named]:
    """Return the models' variables, each once; variables without a layer come last, named by their path."""
    named: dict[int, Named] = {}
    for prefix, model in prefixes(models):
        for path, layer in parts(prefix[:-1], model, is_layer):
            for name, variable, is_buffer in _own(layer):
                _add(named, f"{path}.{name}" if path else name, variable, is_buffer=is_buffer)
        for each in (*getattr(model, "trainable_variables", ()), *getattr(model, "non_trainable_variables", ())):
            _add(named, prefix + dotted(each), each, is_buffer=not each.trainable)
    return list(named.values())


def plain(variable: Any) -> tf.Variable:
    """Return the TensorFlow variable inside a Keras variable, or the variable itself; of copies, the first."""
    return copies(variable)[0]


def copies(variable: Any) -> Sequence[tf.Variable]:
    """Return the copies of a variable that a strategy (`tf.distribute`) makes for its replicas, else the variable."""
    inner = variable.value if isinstance(variable, keras.Variable) else variable
    return inner.values if isinstance(inner, DistributedVariable) else (inner,)


def dotted(variable: Any) -> str:
    """Return the name of a variable without a known layer."""
    return path_of(variable).replace("/", ".")


def path_of(variable: Any) -> str:
    """Return the name that Keras or TensorFlow gives a variable."""
    return variable_name(variable) or ""


def is_variable(thing: object) -> bool:
    """Return whether something is a variable of Keras or TensorFlow."""
    return isinstance(thing, keras.Variable | tf.Variable)


def _add(named: dict[int, Named], name: str, variable: Any, *, is_buffer: bool) -> None:
    """Add a variable under its first name, with a number if another variable has that name."""
    if id(plain(variable)) in named:
        return
    again = sum(each.name == name for each in named.values())
    for each in all_copies(f"{name}.{again}" if again else name, variable, is_buffer=is_buffer):
        named[id(each.variable)] = each


def all_copies(name: str, variable: Any, *, is_buffer: bool = False) -> Iterator[Named]:
    """Yield a variable under this name, and its other copies with their replicas."""
    for number, copy in enumerate(copies(variable)):
        ending = replica_ending(number)
        trains = variable.trainable and not number
        yield Named(name + ending, path_of(variable) + ending, copy, trains, is_buffer)


def _own(layer: Any) -> Iterator[tuple[str, Any, bool]]:
    """Yield a layer's own variables, and whether each is a buffer."""
    if is_keras(layer):
        yield from own_variables(layer)
    for name, value in list(vars(layer).items()):
        if not name.startswith("_") and is_variable(value):
            yield name, value, not value.trainable
