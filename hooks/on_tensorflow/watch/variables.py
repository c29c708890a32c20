"""Names of variables: the place of their layer in the model, as the tables by layer have it, and their own name in it.

"layer1.0.conv1.kernel" is `kernel` of the layer that `layers.Layers` calls "layer1.0.conv1".
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from tbdprof.hooks.naming import prefixes
from tbdprof.hooks.on_tensorflow.watch.layers import children, is_keras, variable_name


@dataclass(frozen=True, slots=True)
class Named:
    """A variable, what the reports call it, and what Keras or TensorFlow does.

    A weight that is not trained, as of a frozen layer, is no buffer: that is what its layer made not to be trained.
    """

    name: str
    path: str
    variable: tf.Variable
    trainable: bool = True
    is_buffer: bool = False


def variables_of(models: Sequence[object]) -> list[Named]:
    """Return the variables of models, each once; what no layer has comes last, by its path."""
    named: dict[int, Named] = {}
    for prefix, model in prefixes(models):
        for path, layer in _walk(prefix[:-1], model, set()):
            for name, variable, is_buffer in _own(layer):
                _add(named, f"{path}.{name}" if path else name, variable, is_buffer=is_buffer)
        for each in (*getattr(model, "trainable_variables", ()), *getattr(model, "non_trainable_variables", ())):
            _add(named, prefix + dotted(each), each, is_buffer=not each.trainable)
    return list(named.values())


def plain(variable: Any) -> tf.Variable:
    """Return TensorFlow's variable of Keras's, or itself."""
    return variable.value if isinstance(variable, keras.Variable) else variable


def dotted(variable: Any) -> str:
    """Return the name of a variable that no known layer has."""
    return path_of(variable).replace("/", ".")


def path_of(variable: Any) -> str:
    """Return what Keras or TensorFlow calls a variable."""
    return variable_name(variable) or ""


def is_variable(thing: object) -> bool:
    """Tell whether something is a variable of Keras or TensorFlow."""
    return isinstance(thing, keras.Variable | tf.Variable)


def _add(named: dict[int, Named], name: str, variable: Any, *, is_buffer: bool) -> None:
    """Take in a variable under its first name, numbered where another one has it."""
    if id(plain(variable)) in named:
        return
    again = sum(each.name == name for each in named.values())
    unique = f"{name}.{again}" if again else name
    named[id(plain(variable))] = Named(unique, path_of(variable), plain(variable), variable.trainable, is_buffer)


def _walk(path: str, layer: Any, seen: set[int]) -> Iterator[tuple[str, Any]]:
    if id(layer) in seen:
        return
    seen.add(id(layer))
    yield path, layer
    for label, child in children(layer):
        yield from _walk(f"{path}.{label}" if path else label, child, seen)


def _own(layer: Any) -> Iterator[tuple[str, Any, bool]]:
    """Yield the variables that a layer itself has, and whether each is a buffer."""
    if is_keras(layer):
        yield from ((each.name, each, False) for each in layer._trainable_variables)  # noqa: SLF001 - of its own alone
        yield from ((each.name, each, True) for each in layer._non_trainable_variables)  # noqa: SLF001
    for name, value in list(vars(layer).items()):
        if not name.startswith("_") and is_variable(value):
            yield name, value, not value.trainable
