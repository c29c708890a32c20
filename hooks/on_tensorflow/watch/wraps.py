"""Functions that are wrapped for a while, again and again; a wrapper that other code wrapped in turn stays."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import backprop

from tbdprof.hooks.patches import Replaced

_GRADIENT = backprop._gradient_function  # noqa: SLF001 - the only way from a tape to its operators


class Wrap:
    """A function that is wrapped for a while."""

    def __init__(self, owner: Any, name: str, make: Callable[[Replaced], Replaced]) -> None:
        self._owner, self._name, self._make = owner, name, make
        self._was_own = False
        self._original: Replaced | None = None
        self._wrapped: Replaced | None = None  # None if it is not wrapped

    def put(self) -> None:
        """Wrap it; do nothing if it is wrapped."""
        if self._wrapped is None:
            self._was_own, self._original = self._name in vars(self._owner), getattr(self._owner, self._name)
            self._wrapped = wraps(self._original)(self._make(self._original))
            setattr(self._owner, self._name, self._wrapped)

    def take(self) -> None:
        """Put the original back, unless other code wrapped it again meanwhile: that may still call ours."""
        if self._wrapped is None or vars(self._owner).get(self._name) is not self._wrapped:
            return
        self._wrapped = None
        if self._was_own:
            setattr(self._owner, self._name, self._original)
        else:
            delattr(self._owner, self._name)


class GradientFunction:
    """What a tape calls for the gradient of an operator, wrapped for a while."""

    def __init__(self, make: Callable[[Replaced], Replaced]) -> None:
        self._wrapped = make(_GRADIENT)

    def put(self) -> None:
        """Wrap it."""
        pywrap_tfe.TFE_Py_RegisterGradientFunction(self._wrapped)

    def take(self) -> None:
        """Put the original back."""
        pywrap_tfe.TFE_Py_RegisterGradientFunction(_GRADIENT)
