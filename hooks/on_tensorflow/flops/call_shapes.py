"""The argument shapes of each call from Python to a traced function in a window."""

from collections import defaultdict
from collections.abc import Callable
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
        self._patches = Patches({_CALLS: [(AtomicFunction, "call_flat", self._noting)]})
        self._patches.need(_CALLS, "window")

    def close(self) -> None:
        """Stop noting calls."""
        self._patches.release("window")

    def _noting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def call_flat(function: Any, *arguments: Any) -> Any:
            if tf.executing_eagerly():
                self.of_calls[function.name.decode()].append(tuple(map(_shape, arguments)))
            return original(function, *arguments)

        return call_flat


def _shape(argument: Any) -> tuple[int, ...] | None:
    if argument.dtype == tf.resource or not argument.shape.is_fully_defined():
        return None
    return tuple(argument.shape.as_list())
