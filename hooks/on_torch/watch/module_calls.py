"""Report every module's call through hooks on all modules: a hook on one module would be copied with the module."""

import re
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Protocol, TypeVar

import torch
from torch._C import _current_graph_task_id
from torch.nn.modules import module as modules
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from tbdprof.hooks.threads import frames, others_out

try:
    from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy
    from torch._C._dynamo.eval_frame import set_code_exec_strategy as _set_strategy

    _SKIPPED: Any = _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP)
except ImportError:  # an older release
    _SKIPPED = None

_PATIENCE_S = 1.0
_POLL_S = 0.001
# The code that runs the hooks around an optimizer's step, and the names of the functions it calls between them.
_STEPS = {torch.optim.Optimizer.profile_hook_step(lambda: None).__code__}
_UPDATING = ("step", "_use_grad")

# A compiled module warns about hooks on all modules; these hooks are not the user's.
_OF_COMPILED: Any = (
    "ignore",
    re.compile(r"Using `torch\.compile\(module\)` when there are global hooks"),
    UserWarning,
    None,
    0,
)

Function = TypeVar("Function", bound=Callable[..., Any])
Before = Callable[[torch.nn.Module, tuple[object, ...]], None]
After = Callable[..., None]  # arguments: module, arguments, keyword arguments if the call did not raise, output


class Handle(Protocol):
    """Removes a hook."""

    def remove(self) -> None:
        """Remove the hook."""


def uncompiled(function: Function) -> Function:
    """Return a function that torch.compile leaves alone, with all that it calls, where its code calls it."""
    # The compiler looks at every frame that begins inside what it compiled, and would compile this one by itself.
    if _SKIPPED is not None:
        plain: Any = function
        _set_strategy(plain.__code__, _SKIPPED)
    return function


def report_calls(before: Before, after: After) -> list[Handle]:
    """Report each module's call, when it begins and when it ends or raises, until the handles are removed.

    What a compiler or a script created counts as one module.
    """
    ended = register_module_forward_hook(after, with_kwargs=True, always_call=True)
    return [_Silence(), _Forgotten(ended.id), register_module_forward_pre_hook(before), ended]


def register_first(before: Before) -> Handle:
    """Report where each module's call begins, before any other hook on all modules."""
    handle = register_module_forward_pre_hook(before)
    modules._global_forward_pre_hooks.move_to_end(handle.id, last=False)  # type: ignore[attr-defined]  # noqa: SLF001
    return handle


def remove(handles: list[Handle]) -> None:
    """Remove hooks, the last one first; another thread may remove them, too."""
    with suppress(IndexError):
        while True:
            handles.pop().remove()


@contextmanager
def between_steps() -> Iterator[None]:
    """Keep other threads out while hooks on optimizers change, when no thread is running through those hooks."""
    until = time.monotonic() + _PATIENCE_S
    while True:
        with others_out():
            if not any(map(_goes_through_hooks, frames().values())) or time.monotonic() > until:
                yield
                return
        time.sleep(_POLL_S)


def _goes_through_hooks(frame: FrameType | None) -> bool:
    """Return whether a thread is in an optimizer's step, but not inside the function that updates the weights."""
    called = None
    while frame is not None:
        if frame.f_code in _STEPS:
            return called is None or called.f_code.co_name not in _UPDATING
        frame, called = frame.f_back, frame
    return False


class Late:
    """Calls functions once the backward pass is over: at the next call of a module outside of it."""

    def __init__(self) -> None:
        self._waiting: list[Callable[[], None]] = []
        self._handles: list[Handle] = []

    def add(self, function: Callable[[], None]) -> None:
        """Call a function then."""
        self._waiting.append(function)
        if not self._handles:
            self._handles.append(register_first(self._called))

    def remove(self) -> None:
        """Forget all functions."""
        self._waiting.clear()
        remove(self._handles)

    @uncompiled
    def _called(self, *_: object) -> None:
        if torch.compiler.is_compiling() or in_backward():
            return
        waiting, self._waiting = self._waiting, []
        remove(self._handles)
        for function in waiting:
            function()


def in_backward() -> bool:
    """Return whether this thread runs a part of the backward pass."""
    return _current_graph_task_id() != -1


def in_transform() -> bool:
    """Return whether a function of `torch.func` runs."""
    innermost = getattr(torch._C._functorch, "peek_interpreter_stack", lambda: None)  # noqa: SLF001
    return innermost() is not None


class _Forgotten:
    """Removes a hook's number from torch's hooks with keyword arguments: the hook's own handle leaves it there."""

    def __init__(self, number: int) -> None:
        self._number = number

    def remove(self) -> None:
        modules._global_forward_hooks_with_kwargs.pop(self._number, None)  # noqa: SLF001 - torch does not do so


class _Silence:
    def __init__(self) -> None:
        _filters().insert(0, _OF_COMPILED)

    def remove(self) -> None:
        with suppress(ValueError):  # gone if someone restored older filters
            _filters().remove(_OF_COMPILED)


def _filters() -> list[Any]:
    return warnings.filters  # type: ignore[return-value]
