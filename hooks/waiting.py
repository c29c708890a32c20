"""Failures of callbacks that a framework runs amid a user's training: they wait until tbdprof itself is called."""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_waiting: list[Exception] = []


def waits(callback: Callable[Arguments, Result]) -> Callable[Arguments, Result | None]:
    """Return a callback whose failure does not reach the training: the first one waits for `raise_waiting`.

    Where it fails, the callback returns None.
    """

    @functools.wraps(callback)
    def quiet(*arguments: Arguments.args, **options: Arguments.kwargs) -> Result | None:
        try:
            return callback(*arguments, **options)
        except Exception as error:  # noqa: BLE001 - no failure of tbdprof reaches the loop
            if not _waiting:
                _waiting.append(error)
            return None

    return quiet


def forget_waiting() -> None:
    """Forget the failure that waits: the window it was met in is over."""
    _waiting.clear()


def raise_waiting() -> None:
    """Raise the failure that waits, if there is one."""
    if _waiting:
        raise _waiting.pop()
