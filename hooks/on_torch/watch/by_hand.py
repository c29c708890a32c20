"""Loops that update their weights by hand, without an optimizer: a step is a backward pass and the update after it."""

import ctypes
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from tbdprof.hooks.instances import instances_of
from tbdprof.hooks.on_torch.session.events import ACCUMULATE_GRAD
from tbdprof.hooks.on_torch.watch.module_calls import in_backward, in_transform, uncompiled
from tbdprof.hooks.on_torch.watch.owners import local_part, storage_of
from tbdprof.hooks.on_torch.watch.watched import Watched
from tbdprof.hooks.waiting import waits

_COMPARED_BYTES = 4096  # of each weight, at most
_COMPARED = 64  # weights

_Look = tuple[weakref.ref[torch.Tensor], bytes | None]  # a weight's first bytes; None if they are not on the CPU


class ByHand:
    """Finds the steps of a loop without an optimizer.

    A step ends where a forward or backward pass begins, if a backward pass has ended before and a weight has changed
    since. If no module is called, the weights are the tensors in which the gradients of the backward passes end.
    """

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self.has_optimizer: bool | None = None  # a step of one makes it true; None: it is looked for where it matters
        self._callback: Callable[[object], None] | None = None
        self._here = _Thread()

    def follow(self, callback: Callable[[object], None]) -> None:
        """Call `callback` at the end of each step, with an object that stands for the thread that took it."""
        self._callback = callback

    def is_so(self) -> bool:
        """Return whether weights are updated by hand: there is no optimizer."""
        if self.has_optimizer is None:
            self.has_optimizer = _is_any_optimizer()
        return not self.has_optimizer

    @uncompiled
    def forward_begins(self, *_: object) -> None:
        """End the step before it where a module is called."""
        if self._here.looks and not (torch.compiler.is_compiling() or in_backward() or in_transform()):
            self._end_step()

    def backward_begins(self, roots: object) -> None:
        """Find the weights if no module is known, and end the step before it; in `torch.func`, weights are wrapped."""
        if in_transform():
            return
        self._find_weights(roots)
        if self._here.looks:
            self._end_step()

    @waits
    def backward_ended(self) -> None:
        """Note what the weights are before they are updated."""
        if self._callback is not None and not self.has_optimizer:
            trained = [each for _, each in self._watched.parameters() if each.requires_grad]
            self._here.looks = [_look(each) for each in trained[:_COMPARED]]

    def touched(self) -> frozenset[int]:
        """Return the addresses of weights and gradients, which an update reads or writes."""
        weights = [each for _, each in self._watched.parameters()]
        tensors = (*weights, *(each.grad for each in weights if each.is_leaf and each.grad is not None))
        places = (storage_of(local_part(each)) for each in tensors)
        return frozenset(place[1] for place in places if place is not None)

    def _end_step(self) -> None:
        if self._callback is not None and self._is_updated() and self.is_so():
            self._callback(self._here.token)

    @waits
    def _is_updated(self) -> bool:
        """Return whether a weight has changed since the backward pass; until one has, the pass waits for its update."""
        changed = any(_has_changed(each) for each in self._here.looks)
        if changed:
            self._here.looks = []
        return changed

    @waits
    def _find_weights(self, roots: object) -> None:
        if not self._watched.models() and self.is_so():
            self._watched.set_loose(list(_leaves(roots)))


class _Token:
    """Stands for a thread that updates weights by hand."""


class _Thread(threading.local):
    """What one thread's last backward pass left."""

    def __init__(self) -> None:
        self.token = _Token()
        self.looks: Sequence[_Look] = ()


def _look(weight: torch.Tensor) -> _Look:
    return weakref.ref(weight), _bytes_of(weight)


def _bytes_of(weight: torch.Tensor) -> bytes | None:
    place = storage_of(local_part(weight))
    if place is None or place[0] != "cpu":
        return None
    return ctypes.string_at(place[1], min(place[2], _COMPARED_BYTES))


def _has_changed(look: _Look) -> bool:
    """Return whether a weight has another value, or another tensor took its place; not looked at on a GPU: true."""
    weight, before = look[0](), look[1]
    return weight is None or before is None or _bytes_of(weight) != before


def _leaves(roots: object) -> Iterator[torch.Tensor]:
    """Yield the tensors in which gradients end, in the order in which the backward pass could reach them."""
    pending: deque[Any] = deque(each.grad_fn for each in tree_leaves(roots) if isinstance(each, torch.Tensor))
    seen = set[object]()
    while pending:
        node = pending.popleft()
        if node is None or node in seen:
            continue
        seen.add(node)
        if node.name() == ACCUMULATE_GRAD:
            yield node.variable
        pending += (each for each, _ in node.next_functions)


def _is_any_optimizer() -> bool:
    of_keras = getattr(getattr(sys.modules.get("keras"), "optimizers", None), "Optimizer", torch.optim.Optimizer)
    return bool(instances_of(torch.optim.Optimizer, of_keras))
