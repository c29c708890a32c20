"""Note what makes MXNet allocate memory that it keeps and Python cannot see: executors and stores.

The module `watch` notes planners. The allocator gives the maker that is at work to each block. An executor's memory is
allocated while it is bound, and where oneDNN keeps results in a layout of its own, while it first runs. Through a
store, devices exchange gradients; it allocates when it is called with a key for the first time. MXNet is waited for
around these calls alone.
"""

import os
import weakref
from collections.abc import Hashable
from typing import Any

import mxnet as mx
from mxnet.executor import Executor
from mxnet.kvstore import KVStore

from tbdprof.hooks.on_mxnet.memory.allocator import Allocator
from tbdprof.hooks.on_mxnet.memory.blocks import EXECUTOR, PLANNER, Maker
from tbdprof.hooks.on_mxnet.session import layout
from tbdprof.hooks.patches import Patches, Replaced
from tbdprof.hooks.waiting import waits

_NEEDED = "memory"
_BIND = ("MXExecutorSimpleBindEx", "MXExecutorSimpleBindEx64", "MXExecutorBindEX", "MXExecutorReshapeEx")
_GIVES_WEIGHTS = ("init", "broadcast")
_GIVES_GRADIENTS = ("push", "pushpull")
_STORE = "store"


class Makers:
    """Notes the makers of memory until it is closed."""

    def __init__(self, allocator: Allocator) -> None:
        self._allocator = allocator
        self._pid = os.getpid()
        self._known: weakref.WeakKeyDictionary[KVStore, set[Hashable]] = weakref.WeakKeyDictionary()
        self._run: weakref.WeakKeyDictionary[Executor, set[Hashable]] = weakref.WeakKeyDictionary()
        self._patches = Patches(
            {
                "all": [
                    *((layout.library(), name, self._around_binding) for name in _BIND),
                    *((Executor, name, self._around_run(name)) for name in ("forward", "backward")),
                    *((KVStore, name, self._around_store(name, True)) for name in _GIVES_WEIGHTS),
                    *((KVStore, name, self._around_store(name, False)) for name in _GIVES_GRADIENTS),
                ]
            }
        )
        self._patches.need("all", _NEEDED)

    def close(self) -> None:
        """Note no more."""
        self._patches.release(_NEEDED)
        self._allocator.maker = None

    def _around_binding(self, original: Replaced) -> Replaced:
        def bind(*arguments: Any) -> Any:
            return self._making(EXECUTOR, lambda: original(*arguments))

        return bind

    def _around_run(self, name: str) -> Any:
        def around(original: Replaced) -> Replaced:
            def run(executor: Executor, /, *arguments: Any, **named: Any) -> Any:
                # A backward pass runs in one way; its arguments are gradients.
                how = named.get("is_train", arguments[:1]) if name == "forward" else ()
                maker = self._first_run(executor, name, how)
                return self._making(maker, lambda: original(executor, *arguments, **named))

            return run

        return around

    def _around_store(self, name: str, is_weight: bool) -> Any:
        def around(original: Replaced) -> Replaced:
            def call(store: KVStore, key: Any, *arguments: Any, **named: Any) -> Any:
                if type(key) in (str, int) and (name, str(key)) in self._known.get(store, ()):  # at every step
                    return original(store, key, *arguments, **named)
                maker = self._first_use(store, key, name, is_weight)
                return self._making(maker, lambda: original(store, key, *arguments, **named))

            return call

        return around

    @waits
    def _first_run(self, executor: Executor, name: str, how: object) -> Maker | None:
        """Return the maker of what an executor allocates, or None if it ran in this way before."""
        before, way = self._run.setdefault(executor, set()), (name, str(how))
        if way in before:
            return None
        before.add(way)
        return EXECUTOR

    @waits
    def _first_use(self, store: KVStore, key: Any, name: str, is_weight: bool) -> Maker | None:
        """Return the maker of what a store allocates, or None if it was called with these keys before."""
        keys = [str(each) for each in key] if isinstance(key, list | tuple) else [str(key)]
        known = self._known.setdefault(store, set())
        if os.getpid() != self._pid or all((name, each) in known for each in keys):
            return None
        known.update((name, each) for each in keys)
        return Maker(_STORE, id(store), keys[0], is_weight)

    def _making(self, maker: Maker | None, original: Any) -> Any:
        is_within = self._allocator.maker not in (None, PLANNER)  # such a call
        if maker is None or os.getpid() != self._pid or is_within:
            return original()
        mx.nd.waitall()
        self._allocator.maker, before = maker, self._allocator.maker
        try:
            return original()
        finally:
            mx.nd.waitall()
            self._allocator.maker = before
