"""Restore MXNet's own functions around a fork: a forked child must not call the replacements."""

import functools
import os
import weakref
from typing import Protocol


class Patched(Protocol):
    """Has replaced some of MXNet's functions."""

    def wait_before_fork(self) -> None:
        """Let every thread leave the replacements."""

    def restore(self) -> None:
        """Restore MXNet's own functions, whatever work is unfinished."""


_INSTALLED: weakref.WeakSet[Patched] = weakref.WeakSet()


def follow_forks(patched: Patched) -> None:
    """Make a forked child restore MXNet's own functions."""
    _INSTALLED.add(patched)
    _register()


def follow_no_more(patched: Patched) -> None:
    """Stop following forks for this object."""
    _INSTALLED.discard(patched)


@functools.cache  # once per process: the registration cannot be removed
def _register() -> None:
    def before() -> None:
        for patched in list(_INSTALLED):
            patched.wait_before_fork()

    def in_child() -> None:
        for patched in list(_INSTALLED):
            patched.restore()

    os.register_at_fork(before=before, after_in_child=in_child)
