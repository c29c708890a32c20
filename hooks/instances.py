"""Find the user's objects among all those that Python's garbage collector knows, and the weights of an optimizer."""

import gc
from typing import Any


def instances_of(*kinds: type) -> list[Any]:
    """Return the objects of these classes and of those derived from them.

    Only the class of an unknown object is looked at: reading more of it may run the user's code.
    """
    return [each for each in gc.get_objects() if issubclass(type(each), kinds)]


def weights_of(optimizer: Any) -> list[Any]:
    """Return the weights that an optimizer or trainer of any framework updates; none if it does not say."""
    try:
        groups = getattr(optimizer, "param_groups", None)
        if groups is not None:  # torch
            return [each for group in groups for each in group["params"]]
        of_mxnet: Any = getattr(optimizer, "_params", None)
        of_keras: Any = getattr(optimizer, "_trainable_variables", None)
        return list(of_mxnet or of_keras or ())
    except Exception:  # noqa: BLE001 - an optimizer of the user's own may raise anything
        return []
