"""Calls of MXNet's API in a kernels window: operators with their arguments, graphs, and the blocks around them."""

import ctypes
import itertools
import threading
from collections.abc import Sequence
from typing import Any

from mxnet import autograd
from mxnet.gluon import Block, HybridBlock

from tbdprof.hooks.on_mxnet.session import layout, stored_values
from tbdprof.hooks.on_mxnet.session.calls import NO_GRADIENT, Array, GraphCall, Invocation, NodeRun, Note, Stored
from tbdprof.hooks.on_mxnet.session.executions import Executions
from tbdprof.hooks.on_mxnet.session.native_engine import Request
from tbdprof.hooks.on_mxnet.watch.phases import Phases
from tbdprof.hooks.patches import Patches, Replaced
from tbdprof.hooks.waiting import waits

_NEEDED = "kernels"
_DTYPES = {0: "float32", 1: "float64", 2: "float16", 3: "uint8", 4: "int32", 5: "int8", 6: "int64", 7: "bool"}


class _Thread(threading.local):
    asked: Invocation | GraphCall | None = None
    graph: HybridBlock | None = None
    note: ctypes.c_int64 | None = None  # where the native code reads the number of this thread's note

    def __init__(self) -> None:
        self.blocks: list[Block] = []


class Calls:
    """Follows calls of blocks, operators and graphs until it is closed."""

    def __init__(self, phases: Phases, library: ctypes.CDLL | None = None) -> None:
        """Take the window's phases, and the native code if that notes the requests."""
        self._phases = phases
        self._library = library
        if library is not None:
            library.tbd_note.restype = ctypes.POINTER(ctypes.c_int64)
        self.executions = Executions(library)
        self._here = _Thread()
        self._told: dict[int, tuple[Block | None, Invocation | GraphCall | None]] = {}  # by the number of a note
        self._numbers = itertools.count()
        self._names: dict[int, str] = {}
        self._wanted: dict[int, bool] = {}  # by node of the recorded graph
        self._patches = Patches(
            {
                "all": [
                    (Block, "__call__", self._around_block),
                    (HybridBlock, "_call_cached_op", self._around_graph),
                    (layout.library(), "MXInvokeCachedOpEx", self._around_cached),
                    (layout.library(), "MXImperativeInvokeEx", self._around_operator),
                ]
            }
        )
        self._patches.need("all", _NEEDED)

    def close(self) -> None:
        """Restore MXNet's functions."""
        self._patches.release(_NEEDED)
        self.executions.close()

    def _given(self, handles: Sequence[int], *, counts_stored: bool) -> tuple[Array, ...]:
        recording = autograd.is_recording()
        found = tuple(_array(handle, wanted=recording and self._is_wanted(handle)) for handle in handles)
        if counts_stored:
            for handle, array in zip(handles, found, strict=True):
                if array.stored is not None:
                    stored_values.ask(handle, array.stored)
        return found

    def _is_wanted(self, handle: int) -> bool:
        """Return whether a backward pass computes an array's gradient: an array behind it has a gradient attached."""
        node = layout.recorded_node(handle)
        if not node:
            return False
        # MXNet gives every operator input a node in the recorded graph, with or without a gradient.
        return self._wanted.get(node, True) if layout.is_made(node) else _has_gradient(handle)

    @waits
    def _made(self, made: Any, outputs: Any, inputs: Sequence[Array], operator: str = "") -> tuple[Array, ...]:
        handles = _handles(made, outputs)
        wanted = operator not in NO_GRADIENT and any(array.wanted for array in inputs)
        self._wanted.update((node, wanted) for handle in handles if (node := layout.recorded_node(handle)))
        return tuple(_array(handle, wanted=wanted) for handle in handles)

    def listen(self, _name: str) -> Note:
        """Return what is known on this thread now."""
        here = self._here
        block = here.blocks[-1] if here.blocks else None
        return Note(self._phases.of_this_thread(), block, self.executions.running or here.asked)

    def note(self, request: Request) -> Note:
        """Return what was known at a request that the native code noted; all phases have ended."""
        block, asked = self._told.get(request.note, (None, None))
        if not request.of_python:
            return Note(None, block, asked)
        node = NodeRun(request.executor, request.node) if request.executor >= 0 else None
        return Note(self._phases.at(request.thread, request.time_ns), block, node or asked)

    def _tell(self) -> None:
        """Tell the native code that something else is now known on this thread."""
        if self._library is None:
            return
        here = self._here
        if here.note is None:
            here.note = self._library.tbd_note().contents
        number = next(self._numbers)
        self._told[number] = here.blocks[-1] if here.blocks else None, here.asked
        here.note.value = number

    def _around_block(self, original: Replaced) -> Replaced:
        def call(block: Block, *arguments: Any) -> Any:
            blocks = self._here.blocks
            blocks.append(block)
            self._tell()
            try:
                return original(block, *arguments)
            finally:
                blocks.pop()
                self._tell()

        return call

    def _around_graph(self, original: Replaced) -> Replaced:
        def call(block: HybridBlock, *arguments: Any) -> Any:
            self._here.graph, outer = block, self._here.graph
            try:
                return original(block, *arguments)
            finally:
                self._here.graph = outer

        return call

    def _around_cached(self, original: Replaced) -> Replaced:
        def invoke(handle: Any, count: Any, inputs: Any, made: Any, outputs: Any, *more: Any) -> Any:
            block = self._here.graph
            if block is None:  # a graph that the script created itself
                return original(handle, count, inputs, made, outputs, *more)
            asked = self._graph_call(block, count, inputs)
            code = self._asking(asked, lambda: original(handle, count, inputs, made, outputs, *more))
            if code == 0 and asked is not None:
                self._made(made, outputs, asked.inputs)
            return code

        return invoke

    def _around_operator(self, original: Replaced) -> Replaced:
        def invoke(creator: Any, count: Any, inputs: Any, made: Any, outputs: Any, *more: Any) -> Any:
            asked = self._invocation(creator, count, inputs, *more[:3])
            code = self._asking(asked, lambda: original(creator, count, inputs, made, outputs, *more))
            if code == 0 and asked is not None:
                asked.outputs = self._made(made, outputs, asked.inputs, asked.operator) or ()
            return code

        return invoke

    @waits
    def _graph_call(self, block: HybridBlock, count: Any, inputs: Any) -> GraphCall:
        given = inputs[: count.value]
        symbol = block._cached_graph[1]  # noqa: SLF001
        arrays = self._given(given, counts_stored=True)
        return GraphCall(block, symbol, arrays, tuple(map(layout.variable, given)))

    @waits
    def _invocation(self, creator: Any, count: Any, inputs: Any, settings: Any, keys: Any, values: Any) -> Invocation:
        attributes = {keys[i].decode(): values[i].decode() for i in range(settings.value)}
        name = self._name(creator.value)
        given = self._given(inputs[: count.value], counts_stored=name in stored_values.COUNTED)
        return Invocation(name, attributes, given)

    def _asking(self, asked: Invocation | GraphCall | None, original: Any) -> Any:
        self._here.asked, outer = asked, self._here.asked
        self._tell()
        try:
            return original()
        finally:
            self._here.asked = outer
            self._tell()

    def _name(self, creator: int) -> str:
        if creator not in self._names:
            name = ctypes.c_char_p()
            layout.library().MXSymbolGetAtomicSymbolName(ctypes.c_void_p(creator), ctypes.byref(name))
            self._names[creator] = (name.value or b"").decode()
        return self._names[creator]


def _handles(made: Any, outputs: Any) -> list[int]:
    """Return the handles of an operator's results from the references that MXNet was given."""
    return list(outputs._obj[: made._obj.value])  # noqa: SLF001


def _array(handle: int, *, wanted: bool) -> Array:
    stored = Stored() if stored_values.is_sparse(handle) else None
    return Array(layout.shape(handle), _DTYPES.get(layout.dtype(handle), ""), wanted, stored)


def _has_gradient(handle: int) -> bool:
    """Return whether an array has a gradient attached."""
    library, gradient = layout.library(), ctypes.c_void_p()
    library.MXNDArrayGetGrad(ctypes.c_void_p(handle), ctypes.byref(gradient))
    if gradient.value:
        library.MXNDArrayFree(gradient)
    return bool(gradient.value)
