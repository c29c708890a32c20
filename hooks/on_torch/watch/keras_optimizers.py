"""Keras's optimizers where Keras computes with torch: torch's own hooks on optimizers do not see them.

Keras may be imported after the watching began, so `KerasOptimizers.find` is called whenever a model is.
"""

import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch

from tbdprof.hooks.keras_objects import slots, trained_by
from tbdprof.hooks.patches import Patches, Replaced

Stepping = Callable[[Any], None]  # takes a `KerasOptimizer`
_SETTINGS = ("momentum", "amsgrad", "centered")
_APPLY = "apply"


class KerasOptimizer:
    """An optimizer of Keras with the attributes of one of torch's, as far as the watching reads them."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = weakref.ref(optimizer)

    @property
    def made(self) -> type:
        """Return the optimizer's class."""
        return type(self._optimizer())

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Return the tensors that it updates, as one group with its settings."""
        optimizer = self._optimizer()
        settings = {name: getattr(optimizer, name, None) for name in _SETTINGS}
        return [{"params": [each.value for each in trained_by(optimizer)], **settings}]

    @property
    def state(self) -> Mapping[object, Mapping[str, torch.Tensor]]:
        """Return its state by the tensor that it updates; what it keeps once is under its own name."""
        optimizer, found = self._optimizer(), dict[object, dict[str, torch.Tensor]]()
        for slot, variable, state in () if optimizer is None else slots(optimizer):
            key = str(getattr(optimizer, "name", "")) if variable is None else variable.value
            found.setdefault(key, {})[slot] = state.value
        return found


class KerasOptimizers:
    """Reports each step of Keras's optimizers, from `find` until `close`."""

    def __init__(self, begins: Stepping, ends: Stepping) -> None:
        self._begins, self._ends = begins, ends
        self._known: weakref.WeakKeyDictionary[Any, KerasOptimizer] = weakref.WeakKeyDictionary()
        self._patches: Patches | None = None
        self._is_closed = False
        self._lock = threading.Lock()  # two threads may call their first modules at once

    def find(self) -> None:
        """Follow Keras's optimizers from now on if Keras is imported and computes with torch."""
        if self._patches is not None or (kind := _optimizer_class()) is None:
            return
        with self._lock:
            if self._patches is None and not self._is_closed:
                self._patches = Patches({_APPLY: [(kind, _APPLY, self._around_apply)]})
                self._patches.need(_APPLY, _APPLY)

    def of(self, optimizer: object) -> KerasOptimizer | None:
        """Return an optimizer of Keras as one of torch's, or None if it is none."""
        kind = _optimizer_class()
        if kind is None or not isinstance(optimizer, kind):
            return None
        return self._known.setdefault(optimizer, KerasOptimizer(optimizer))

    def close(self) -> None:
        """Restore Keras's function, for good: another thread may be about to call `find`."""
        with self._lock:
            self._is_closed = True
            if self._patches is not None:
                self._patches.release(_APPLY)

    def _around_apply(self, original: Replaced) -> Replaced:
        def apply(optimizer: Any, /, *arguments: Any, **named: Any) -> Any:
            mine = None if torch.compiler.is_compiling() else self.of(optimizer)
            if mine is None:
                return original(optimizer, *arguments, **named)
            self._begins(mine)
            with torch.autograd.profiler.record_function(f"Optimizer.step#{mine.made.__name__}.step"):
                result = original(optimizer, *arguments, **named)
            self._ends(mine)
            return result

        return apply


def _optimizer_class() -> type | None:
    keras = sys.modules.get("keras")
    try:
        return keras.optimizers.Optimizer if keras is not None and keras.config.backend() == "torch" else None
    except AttributeError:  # Keras is being imported
        return None
