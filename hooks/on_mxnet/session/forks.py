"""What is done around a fork: a forked child calls MXNet's own functions, not what was put in their places."""

import functools
import os
import weakref
from typing import Protocol


class Patched(Protocol):
    """Has given MXNet something to call."""

    def wait_before_fork(self) -> None:
        """Let every thread leave it."""

    def restore(self) -> None:
        """Put MXNet's own back, whatever is under way."""


_INSTALLED: weakref.WeakSet[Patched] = weakref.WeakSet()


def follow_forks(patched: Patched) -> None:
    """Have a forked child put MXNet's own back."""
    _INSTALLED.add(patched)
    _register()


def follow_no_more(patched: Patched) -> None:
    """Do nothing more for this at a fork."""
    _INSTALLED.discard(patched)


@functools.cache  # once a process: what is registered stays
def _register() -> None:
    def before() -> None:
        for patched in list(_INSTALLED):
            patched.wait_before_fork()

    def in_child() -> None:
        for patched in list(_INSTALLED):
            patched.restore()

    os.register_at_fork(before=before, after_in_child=in_child)
