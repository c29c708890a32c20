"""Names of layers: a layer's path in its model, by attributes ("layer1.0.conv1") or by layer names in a sequence.

Keras opens a name scope for each layer that it calls. So the names of a graph's operators give the layer even if
nothing was noted while the graph was created. What was noted, of layers and of all else, are `Notes`.
"""

import re
import weakref
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from tbdprof.hooks.keras_objects import children, is_keras

_NUMBERED = re.compile(r"_\d+$")  # makes a name scope unique in its graph
_GRADIENT = "gradient_tape/"
_SYMBOLIC = "gradients/"  # scope of a loop's body, whose gradients are computed without a tape


@dataclass(frozen=True, slots=True)
class Interval:
    """The operators of a graph between two positions, and what they have in common."""

    first: int
    last: int
    value: Any
    replica: int = 0  # of a strategy: while one waits within an interval, operators of others are created


@dataclass(slots=True)
class Notes:
    """What was noted while a graph was created."""

    phases: list[Interval] = field(default_factory=list)  # values of Phase
    layers: list[Interval] = field(default_factory=list)  # values: weak references to layers
    gradients: list[Interval] = field(default_factory=list)  # values: the operator whose gradient it is
    results: list[tuple[Any, str]] = field(default_factory=list)  # variables' gradients, with the variables' names


class Layers:
    """The layers of the watched models, by identity and by name scope."""

    def __init__(self) -> None:
        self._paths: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._roots: list[weakref.ref[Any]] = []
        self._named: tuple[int, weakref.WeakValueDictionary[str, Any]] = (0, weakref.WeakValueDictionary())

    def add(self, prefix: str, model: object) -> None:
        """Add a model and its parts; `prefix` begins its parameters' names."""
        if not is_layer(model) or model in self._paths:
            return
        self._roots.append(weakref.ref(model))
        for path, layer in _walk(prefix.removesuffix("."), model, set()):
            self._paths.setdefault(layer, path)

    def refresh(self) -> None:
        """Add the parts that models were given since then."""
        for root in self.roots():
            for path, layer in _walk(self._paths[root], root, set()):
                self._paths.setdefault(layer, path)

    def _everywhere(self) -> Mapping[str, Any]:
        """Return all layers by name; of several with one name, the first."""
        if self._named[0] != len(self._paths):
            self._named = len(self._paths), weakref.WeakValueDictionary(_by_name(self._paths))
        return self._named[1]

    def roots(self) -> list[Any]:
        """Return the models that still exist."""
        return [model for model in (root() for root in self._roots) if model is not None]

    def path(self, layer: object) -> str | None:
        """Return a layer's path, "" for a model, or None outside the models."""
        found: str | None = self._paths.get(layer)
        return found

    def types(self) -> set[type]:
        """Return the classes of layers that are plain modules, which are called only through their own class."""
        return {type(layer) for layer in self._paths if not is_keras(layer)}

    def trainable(self) -> Iterator[tuple[str, Any]]:
        """Yield the models' trainable variables, with the names that their owners give them."""
        for model in self.roots():
            for variable in getattr(model, "trainable_variables", ()):
                value = getattr(variable, "value", variable)
                tf_variable = variable if isinstance(variable, tf.Variable) else value
                name = variable_name(variable)
                if name is not None:
                    yield name, tf_variable

    def of_scope(self, scope: str, *, numbered: bool = True, of_parts: bool = False) -> str | None:
        """Return the layer of a name scope ("resnet50_1/layer1/0/conv1_2/convolution"), or None if it names none.

        The scopes of graphs are `numbered`, those of eager mode are not. Other scopes may stand around a model's, such
        as a replica's. With `of_parts`, a model's part may be called without the model, as in a training step of one's
        own. It must have its number then: an addition is an operator "add", and no layer "add".
        """
        layer, names = None, scope.split("/")
        for place, name in enumerate(names):
            if layer is not None:
                parts = _by_name([child for _, child in children(layer, is_layer)])
                layer = _called(name, parts, numbered=numbered) or layer
                continue
            layer = _called(name, _by_name(self.roots()), numbered=numbered)
            if layer is None and of_parts and place < len(names) - 1 and (_NUMBERED.search(name) or not numbered):
                layer = self._everywhere().get(_NUMBERED.sub("", name) if numbered else name)
        return None if layer is None else self._paths.get(layer)


def variable_name(variable: Any) -> str | None:
    """Return a variable's name as its owner gives it: Keras's path, else TensorFlow's name."""
    path = getattr(variable, "path", None)
    if isinstance(path, str):
        return path
    return str(variable.name).partition(":")[0] if isinstance(variable, tf.Variable) else None


def in_order(gradients: Any) -> list[Any]:
    """Return gradients in the order of their sources; None and gradients of lookups stay as they are."""
    return list(tf.nest.flatten(gradients, expand_composites=False))


def replica_ending(number: int) -> str:
    """Return what TensorFlow appends to the name of the copy that a replica has of a variable: "" for the first."""
    return f"/replica_{number}" if number else ""


def is_layer(thing: object) -> bool:
    """Return whether something is a layer, a model or a module."""
    return isinstance(thing, tf.Module) or is_keras(thing)


def scopes(name: str) -> Iterator[str]:
    """Yield the name scopes around an operator's name; for a gradient, those of the operator it is the gradient of.

    The name itself comes first, then shorter and shorter scopes.
    """
    plain = name.rpartition(_GRADIENT)[2]
    before, symbolic, after = plain.rpartition(_SYMBOLIC)
    for text in (after, before) if symbolic else (plain,):
        parts = text.strip("/").split("/")
        for size in range(len(parts), 0, -1):
            yield "/".join((*parts[: size - 1], parts[size - 1].removesuffix("_grad")))


def found_in(name: str, known: Mapping[str, str]) -> str | None:
    """Return what is known of the longest scope of a name."""
    return next((known[scope] for scope in scopes(name) if scope in known), None)


def _walk(path: str, layer: Any, above: set[int]) -> Iterator[tuple[str, Any]]:
    yield path, layer
    for label, child in children(layer, is_layer):
        if id(child) not in above:
            yield from _walk(f"{path}.{label}" if path else label, child, above | {id(layer)})


def _by_name(layers: Iterable[Any]) -> dict[str, Any]:
    return {str(getattr(layer, "name", "")): layer for layer in reversed(list(layers))}


def _called(scope: str, named: Mapping[str, Any], *, numbered: bool) -> Any:
    """Return the layer that a part of a name scope stands for.

    Keras opens a layer's scope twice per call, and a graph numbers the second: "dense_1" is the layer "dense" before it
    is the layer "dense_1".
    """
    names = (_NUMBERED.sub("", scope), scope) if numbered else (scope,)
    return next((named[name] for name in names if name in named), None)
