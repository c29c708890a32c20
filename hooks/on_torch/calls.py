"""Being told of every module's call: hooks on all modules at once, for a hook in a module goes into its copies."""

import re
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

import torch
from torch.nn.modules import module as modules
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

# A compiled module warns of hooks on all modules, that are none of the user's.
_OF_COMPILED: Any = (
    "ignore",
    re.compile(r"Using `torch\.compile\(module\)` when there are global hooks"),
    UserWarning,
    None,
    0,
)

Before = Callable[[torch.nn.Module, tuple[object, ...]], None]
After = Callable[..., None]  # module, arguments, keyword arguments where the call did not raise, output


class Handle(Protocol):
    """What takes a hook off."""

    def remove(self) -> None:
        """Take it off."""


def tell_calls(before: Before, after: After) -> list[Handle]:
    """Have every module's call told, as it begins and as it ends, however that is, until the handles are removed.

    What a compiler or a script made is called as one module.
    """
    ended = register_module_forward_hook(after, with_kwargs=True, always_call=True)
    return [_Silence(), _Forgotten(ended.id), register_module_forward_pre_hook(before), ended]


def remove(handles: list[Handle]) -> None:
    """Take hooks off, the last first."""
    while handles:
        handles.pop().remove()


class _Forgotten:
    """A hook's number among those with keyword arguments, that its own handle leaves there."""

    def __init__(self, number: int) -> None:
        self._number = number

    def remove(self) -> None:
        modules._global_forward_hooks_with_kwargs.pop(self._number, None)  # noqa: SLF001 - torch forgets it


class _Silence:
    def __init__(self) -> None:
        _filters().insert(0, _OF_COMPILED)

    def remove(self) -> None:
        with suppress(ValueError):  # who put older filters back took it off
            _filters().remove(_OF_COMPILED)


def _filters() -> list[Any]:
    return warnings.filters  # type: ignore[return-value]
