"""Make executors request one operator at a time in a kernels window, and note which node of its graph each one is.

An executor usually requests many operators in bulk, as one. It does so within a range of its graph's nodes, which one
function of MXNet's library takes: `GraphExecutor::RunOps(is_train, first, end)`. The library calls it through a jump
slot. Its replacement calls it for one node after another, and what is requested meanwhile is that node's.
"""

import atexit
import ctypes
import os
import threading
from collections import defaultdict
from typing import Any

from mxnet.executor import Executor

from tbdprof.errors import UnavailableError
from tbdprof.hooks.interrupts import Signals, guarded
from tbdprof.hooks.on_mxnet.memory import jump_slots
from tbdprof.hooks.on_mxnet.session import layout, stored_values
from tbdprof.hooks.on_mxnet.session.calls import NodeRun, Stored
from tbdprof.hooks.on_mxnet.session.forks import follow_forks, follow_no_more
from tbdprof.hooks.patches import Patches, Replaced
from tbdprof.hooks.waiting import waits

_RUN_OPS = "_ZN5mxnet4exec13GraphExecutor6RunOpsEbmm"
_NEEDED = "kernels"
_Word = ctypes.c_size_t
_RunOps = ctypes.CFUNCTYPE(None, _Word, ctypes.c_bool, _Word, _Word)


class _Thread(threading.local):
    running: NodeRun | None = None


class Executions:
    """Follows executors until it is closed.

    `executors` has those that ran, by handle. `stored` has what the sparse arguments of each forward call store.
    """

    def __init__(self, library: ctypes.CDLL | None = None) -> None:
        """Take the native code, if it is used: it notes the nodes itself."""
        self.executors: dict[int, Executor] = {}
        self.stored: defaultdict[int, list[dict[str, Stored]]] = defaultdict(list)
        self._here = _Thread()
        self._pid = os.getpid()
        self._signals = Signals()
        self._slot: jump_slots.Slot | None = None
        self._patches = Patches(
            {"all": [(Executor, "forward", self._around_forward), (Executor, "backward", self._around)]}
        )
        self._patches.need("all", _NEEDED)
        try:
            (slot,) = jump_slots.find(layout.library(), (_RUN_OPS,))
        except UnavailableError:  # another build: operators of executors stay in bulk
            return
        self._signals.install()
        if library is None:
            target = self._callback(_RunOps(slot.function))
            _KEPT.append(target)
        else:
            library.tbd_executors_begin(_Word(slot.function))
            target = library.tbd_run_ops
        self._slot = slot
        slot.write(ctypes.cast(target, ctypes.c_void_p).value or 0)
        atexit.register(self.restore)
        follow_forks(self)

    @property
    def running(self) -> NodeRun | None:
        """Return the node that this thread requests now."""
        return self._here.running

    def close(self) -> None:
        """Restore MXNet's functions; `executors` are kept."""
        self._patches.release(_NEEDED)
        atexit.unregister(self.restore)
        follow_no_more(self)
        self.restore()

    def wait_before_fork(self) -> None:
        """Do nothing: no thread of the engine calls the replacement."""

    def restore(self) -> None:
        """Restore MXNet's own function."""
        if self._slot is not None:
            self._slot.restore()
            self._slot = None
            self._signals.restore()

    def _around(self, original: Replaced) -> Replaced:
        def run(executor: Executor, /, *arguments: Any, **named: Any) -> Any:
            self.executors[executor.handle.value or 0] = executor
            return original(executor, *arguments, **named)

        return run

    def _around_forward(self, original: Replaced) -> Replaced:
        around = self._around(original)

        def run(executor: Executor, /, *arguments: Any, **named: Any) -> Any:
            result = around(executor, *arguments, **named)
            self._ask(executor)
            return result

        return run

    @waits
    def _ask(self, executor: Executor) -> None:
        """Ask what the sparse arguments store; the call may have written them, and later calls may write them again."""
        found = {}
        for name, array in executor.arg_dict.items():
            if layout.is_sparse(array):
                found[name] = Stored()
                stored_values.ask(array.handle.value or 0, found[name])
        self.stored[executor.handle.value or 0].append(found)

    def _callback(self, original: Any) -> "ctypes._FuncPointer":
        here = self._here

        @guarded
        def run_ops(executor: int, is_train: bool, first: int, end: int) -> None:
            outer = here.running
            try:
                for node in range(first, end):
                    here.running = NodeRun(executor, node)
                    original(executor, is_train, node, node + 1)
            finally:
                here.running = outer

        return _RunOps(run_ops)


# A callback that MXNet was given is never freed: a thread may be about to enter it.
_KEPT: list[object] = []
