"""The argument shapes of each call from Python to a traced function in a window."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import tensorflow as tf
from tensorflow.python.eager.polymorphic_function.atomic_function import AtomicFunction

from tbdprof.hooks.on_tensorflow.flops.sizes import Given
from tbdprof.hooks.patches import Patches

_CALLS = "calls"


class Arguments:
    """Notes the argument shapes of every call from its construction until `close`, including captured variables."""

    def __init__(self) -> None:
        self.of_calls: defaultdict[str, list[Given]] = defaultdict(list)  # by function, in the order of the calls
        self._values: dict[str, list[int]] = {}  # by function: which of its arguments are no resources
        self._patches = Patches({_CALLS: [(AtomicFunction, "call_flat", self._noting)]})
        self._patches.need(_CALLS, "window")

    def close(self) -> None:
        """Stop noting calls."""
        self._patches.release("window")

    def _note(self, name: str, arguments: Sequence[Any]) -> None:
        # A training step takes a resource for each variable and state; a function takes the same types in every call.
        if name not in self._values:
            self._values[name] = [place for place, each in enumerate(arguments) if each.dtype != tf.resource]
        given: list[tuple[int, ...] | None] = [None] * len(arguments)
        for place in self._values[name]:
            given[place] = _shape(arguments[place])
        self.of_calls[name].append(tuple(given))

    def _noting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def call_flat(function: Any, *arguments: Any) -> Any:
            if tf.executing_eagerly():
                self._note(function.name.decode(), arguments)
            return original(function, *arguments)

        return call_flat


def _shape(argument: Any) -> tuple[int, ...] | None:
    return tuple(argument.shape.as_list()) if argument.shape.is_fully_defined() else None
