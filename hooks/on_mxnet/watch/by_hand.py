"""Loops that update their weights by hand, without a trainer: a step is a backward pass and the update after it."""

import ctypes
from collections.abc import Iterable

from mxnet.gluon import Trainer
from mxnet.module.base_module import BaseModule

from tbdprof.hooks.instances import instances_of
from tbdprof.hooks.on_mxnet.session import layout
from tbdprof.hooks.on_mxnet.watch import owners
from tbdprof.hooks.waiting import waits


class ByHand:
    """Knows whether a script has a trainer, and without one, whether a backward pass waits for its update."""

    def __init__(self, watched: owners.Watched) -> None:
        self.is_pending = False
        self._watched = watched
        self._has_trainer: bool | None = None  # None: not looked for yet
        self._touched: frozenset[int] = frozenset()  # the storages of weights and gradients

    def has_trainer(self) -> bool:
        """Return whether the script has a trainer, or a module with an optimizer; it is looked for once."""
        if self._has_trainer is None:
            self._has_trainer = any(
                isinstance(each, Trainer) or getattr(each, "optimizer_initialized", False)
                for each in instances_of(Trainer, BaseModule)
            )
        return self._has_trainer

    def has_stepped(self) -> None:
        """Note that a trainer has stepped."""
        self._has_trainer, self.is_pending = True, False

    @waits
    def passed(self, *, watches: bool) -> None:
        """Note that a backward pass has ended; if the window `watches`, also which storages an update touches."""
        if self._has_trainer:
            return
        self.is_pending = True
        if watches and not self.has_trainer():
            arrays = (array for _, each in self._watched.parameters() for array in (*each.arrays, *each.gradients))
            self._touched = frozenset(storage[1] for array in arrays for storage in layout.storages(array))

    @waits
    def step_ended(self) -> bool:
        """Return whether a step without a trainer ends where a forward pass begins now."""
        pending, self.is_pending = self.is_pending, False
        return pending and not self.has_trainer()

    @waits
    def touches(self, given: Iterable[int], made: Iterable[int]) -> bool:
        """Return whether an operator's arguments or results, given by their handles, are weights or gradients."""
        return any(_address(handle) in self._touched for handle in (*given, *made))


def _address(handle: int) -> int:
    """Return the address of an array's storage, or 0."""
    chunk = ctypes.c_size_t.from_address(handle).value
    return layout.Handle.from_address(chunk).address if chunk else 0
