"""Being told of every module's call: hooks on all modules at once, for a hook in a module goes into its copies."""

import re
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Protocol

import torch
from torch.nn.modules import module as modules
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from tbdprof.hooks.threads import frames, others_out

_PATIENCE_S = 1.0
_POLL_S = 0.001
# What goes through the hooks around an optimizer's step, and what it calls between them.
_STEPS = {torch.optim.Optimizer.profile_hook_step(lambda: None).__code__}
_UPDATING = ("step", "_use_grad")

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


@contextmanager
def between_steps() -> Iterator[None]:
    """Keep other threads out while hooks on optimizers change: none may be going through them then."""
    until = time.monotonic() + _PATIENCE_S
    while True:
        with others_out():
            if not any(map(_goes_through_hooks, frames().values())) or time.monotonic() > until:
                yield
                return
        time.sleep(_POLL_S)


def _goes_through_hooks(frame: FrameType | None) -> bool:
    """Return whether a thread is in an optimizer's step, but neither in what updates the weights nor deeper."""
    called = None
    while frame is not None:
        if frame.f_code in _STEPS:
            return called is None or called.f_code.co_name not in _UPDATING
        frame, called = frame.f_back, frame
    return False


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
